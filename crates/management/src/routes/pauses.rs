//! Queues are paused, and go on.

use machine::CatalogCommand;

use crate::asked::Asked;
use crate::node::View;
use crate::reply::{Problem, Reply};
use crate::work::Work;

pub(super) fn put(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    set(view, asked, Some(asked.user.clone()))
}

pub(super) fn delete(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    set(view, asked, None)
}

fn set(view: &View<'_>, asked: &Asked, by: Option<String>) -> Result<Work, Problem> {
    let (vhost, name) = (asked.vhost().to_owned(), asked.part("queue").to_owned());
    let queue = view.catalog.queue(&vhost, &name).ok_or(Problem::NotFound)?;
    let reply = match by {
        Some(_) => Reply::put(queue.pause().is_some()),
        None => Reply::done(),
    };
    let commands = vec![CatalogCommand::PauseQueue { vhost, name, by }];
    Ok(Work::Change { commands, reply })
}
