//! What happens, as it happens.

use crate::asked::Asked;
use crate::node::View;
use crate::reply::Problem;
use crate::work::Work;

pub(super) fn live(_: &View<'_>, _: &Asked) -> Result<Work, Problem> {
    Ok(Work::Live)
}
