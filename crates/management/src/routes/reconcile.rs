//! Whether the books of queues are right, and replicas alike.

use crate::asked::Asked;
use crate::node::View;
use crate::reply::Problem;
use crate::work::Work;

pub(super) fn all(_: &View<'_>, _: &Asked) -> Result<Work, Problem> {
    Ok(Work::Books { vhost: None })
}

pub(super) fn of_vhost(_: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    Ok(Work::Books { vhost: Some(asked.vhost().to_owned()) })
}
