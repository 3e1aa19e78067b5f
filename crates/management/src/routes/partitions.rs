//! Streams get more partitions.

use machine::limits::PARTITIONS_MAX;
use machine::{CatalogCommand, Features};
use serde_json::Value;

use crate::asked::Asked;
use crate::node::View;
use crate::reply::{Problem, Reply};
use crate::work::Work;

/// `{"partitions": 8}`: no fewer than there are. The subscriptions of the stream get as many.
pub(super) fn put(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let (vhost, name) = (asked.vhost().to_owned(), asked.part("queue").to_owned());
    let queue = view.catalog.queue(&vhost, &name).ok_or(Problem::NotFound)?;
    if !queue.settings().is_stream() {
        return Err(Problem::bad(format!("queue '{name}' is no stream")));
    }
    let has = queue.partition_count() as u64;
    let wanted = asked.object()?.find("partitions").and_then(Value::as_u64);
    let wanted = wanted.and_then(|count| u16::try_from(count).ok());
    let Some(wanted) = wanted.filter(|count| (1..=PARTITIONS_MAX).contains(count)) else {
        return Err(Problem::bad(format!("\"partitions\" is a number from 1 to {PARTITIONS_MAX}")));
    };
    if u64::from(wanted) < has {
        let text = format!("stream '{name}' has {has} partitions, and keeps what is in them");
        return Err(Problem::bad(text));
    }
    let readers = view.catalog.vhost(&vhost).into_iter().flat_map(|it| it.subscriptions_of(queue));
    // Those that were declared by an older program know nothing of partitions.
    let is_old = |it: &Features| it.single_active && it.assignment.is_none();
    let mut single = readers.filter(|it| it.features().is_some_and(is_old));
    if let Some(single) = single.next() {
        let text = format!(
            "subscription '{}' serves a single active consumer, and is from before there was one for several \
             partitions: delete it, and declare it again",
            single.name
        );
        return Err(Problem::bad(text));
    }
    let mut spec = queue.declared().clone();
    spec.partitions = wanted;
    let command =
        CatalogCommand::ChangeQueue { vhost, name, queue: queue.id, spec: Box::new(spec) };
    Ok(Work::Change { commands: vec![command], reply: Reply::put(true) })
}
