//! How the cluster, a node or a queue stood over the last two days.

use crate::asked::Asked;
use crate::history::{SPAN_S_MAX, Window};
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
    let number = |name: &str, least: u64, otherwise: u64| match asked.word(name) {
        None => Ok(otherwise),
        Some(text) => {
            let number = text.parse().ok().filter(|number| *number >= least);
            let why = || Problem::bad(format!("{name} should be a number, {least} or more"));
            number.ok_or_else(why)
        }
    };
    let (seconds, ago) = (number("seconds", 1, SECONDS)?, number("ago", 0, 0)?);
    if ago >= SPAN_S_MAX {
        let why = format!("ago should be less than {SPAN_S_MAX}: history goes back no further");
        return Err(Problem::bad(why));
    }
    let now_ms = u64::try_from(view.facts.now_s).unwrap_or_default() * 1000;
    let window = Window::before(seconds, ago, now_ms);
    // What has happened since the last whole point belongs to it.
    let until_ms = if ago == 0 { u64::MAX } else { window.ends_ms() };
    Ok(Work::History(History { window, until_ms, of }))
}
