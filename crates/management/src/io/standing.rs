//! How this node stands, as others are told.

use super::api::Api;
use crate::neighbour::NodeStanding;
use crate::routes::nodes;

/// How this node stands.
pub(super) fn standing(api: &Api) -> NodeStanding {
    let facts = api.facts();
    NodeStanding { shown: nodes::shown(&facts), totals: facts.totals }
}
