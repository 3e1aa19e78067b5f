//! Relays and workers that nodes are told of.

use crate::asked::Asked;
use crate::companions::Wish;
use crate::node::View;
use crate::page::Shape;
use crate::reply::Problem;
use crate::work::Work;

pub(super) fn pause(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    order(view, asked, true)
}

pub(super) fn resume(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    order(view, asked, false)
}

fn order(_: &View<'_>, asked: &Asked, rest: bool) -> Result<Work, Problem> {
    let pipeline = asked.path.get("pipeline").cloned();
    Ok(Work::Companion(Wish { address: asked.part("companion").to_owned(), pipeline, rest }))
}

pub(super) fn list(_: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    Ok(Work::Companions { shape: Shape::of(asked)? })
}
