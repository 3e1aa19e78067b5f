//! Queues are emptied: for good, or so that it can be undone for a while.

use cluster::WithholdStep;
use machine::Queue;
use machine::limits::UNDO_MS_MAX;

use crate::asked::Asked;
use crate::node::View;
use crate::reply::{Problem, Reply};
use crate::work::{Step, Withhold, Work};

pub(super) fn purge(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let queue = view.catalog.queue(asked.vhost(), asked.part("queue")).ok_or(Problem::NotFound)?;
    let Some(undo_ms) = asked.word("undo_ms") else {
        let (vhost, step) = (queue.vhost.clone(), Step::Purge { name: queue.name.clone() });
        return Ok(Work::Client { vhost, step, reply: Reply::done() });
    };
    let undo_ms = undo_ms.parse().ok().filter(|ms| (1..=UNDO_MS_MAX as u32).contains(ms));
    let undo_ms = undo_ms.ok_or_else(|| {
        Problem::bad(format!(
            "undo_ms should be a whole number of milliseconds from 1 to {UNDO_MS_MAX}"
        ))
    })?;
    withhold(view, asked, queue, WithholdStep::Purge { undo_ms })
}

pub(super) fn unpurge(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let queue = view.catalog.queue(asked.vhost(), asked.part("queue")).ok_or(Problem::NotFound)?;
    withhold(view, asked, queue, WithholdStep::Undo)
}

/// No session of the user does it, so it is judged here as a session judges a purge.
fn withhold(
    view: &View<'_>,
    asked: &Asked,
    queue: &Queue,
    step: WithholdStep,
) -> Result<Work, Problem> {
    if !asked.who(view.catalog)?.reads(&queue.vhost, &queue.name) {
        let why = "Not a user that may read from the queue: whoever purges it may";
        return Err(Problem::NotAuthorised(why.to_owned()));
    }
    let (vhost, name) = (queue.vhost.clone(), queue.name.clone());
    if queue.exclusive.is_some() {
        return Err(Problem::bad(format!(
            "queue '{name}' is exclusive: its connection alone may purge it"
        )));
    }
    if queue.settings().is_stream() || queue.settings().subscription().is_some() {
        return Err(Problem::bad(format!(
            "queue '{name}' is a stream or a subscription of one: messages of a stream are not purged, and a \
             subscription is set to another place and back (PUT /api/millrace/queues/VHOST/NAME/position)"
        )));
    }
    let partitions = queue.partitions().map(|it| (it.group, it.queue)).collect();
    Ok(Work::Withhold(Withhold { vhost, name, partitions, step }))
}
