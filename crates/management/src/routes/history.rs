//! How the cluster, a node or a queue stood over the last day.

use crate::asked::Asked;
use crate::history::Window;
use crate::node::{View, name_of};
use crate::reply::Problem;
use crate::work::{History, Past, Work};

/// Seconds, if nobody says how many: an hour.
const SECONDS: u64 = 3600;

pub(super) fn all(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    work(view, asked, Past::All)
}

pub(super) fn node(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let mut nodes = view.catalog.nodes().map(|node| node.node);
    let node = nodes.find(|node| name_of(*node) == asked.part("node"));
    work(view, asked, Past::Node(node.ok_or(Problem::NotFound)?))
}

pub(super) fn queue(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let queue = view.catalog.queue(asked.vhost(), asked.part("queue")).ok_or(Problem::NotFound)?;
    work(view, asked, Past::Queue(queue.id))
}

fn work(view: &View<'_>, asked: &Asked, of: Past) -> Result<Work, Problem> {
    let seconds = match asked.word("seconds") {
        None => SECONDS,
        Some(text) => {
            let seconds = text.parse().ok().filter(|seconds| *seconds > 0);
            seconds.ok_or_else(|| Problem::bad("seconds should be a number, 1 or more"))?
        }
    };
    let now_ms = u64::try_from(view.facts.now_s).unwrap_or_default() * 1000;
    Ok(Work::History(History { window: Window::back(seconds, now_ms), of }))
}
