//! Deployments, as somebody tells of them.

use crate::asked::Asked;
use crate::marks::checked_text;
use crate::node::View;
use crate::reply::Problem;
use crate::work::Work;

pub(super) fn post(_: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let body = asked.object()?;
    let text = checked_text(body.needed("text")?)?.to_owned();
    Ok(Work::Mark { text })
}
