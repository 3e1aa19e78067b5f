//! What is wrong now, and what to do about it.

use crate::access::Sight;
use crate::asked::Asked;
use crate::node::View;
use crate::reply::Problem;
use crate::work::Work;

pub(super) fn problems(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    Ok(Work::Problems(Sight::of(asked.who(view.catalog)?, view.catalog)))
}
