//! Relays and workers that nodes are told of.

use crate::asked::Asked;
use crate::node::View;
use crate::page::Shape;
use crate::reply::Problem;
use crate::work::Work;

pub(super) fn list(_: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    Ok(Work::Companions { shape: Shape::of(asked)? })
}
