//! Queues: declared, purged and deleted.

use amqp::{Method, queue};
use cluster::Request;
use machine::{
    CatalogCommand, CatalogReply, CloseError, GroupId, Partition, Queue, QueueId, QueueType,
};

use super::{
    Deletion, Found, Next, Pending, Topology, change, find_queue, more_of, text_argument,
    usable_queue, without_line_ends,
};
use crate::arguments::queue::Declaration;
use crate::auth::Verb;
use crate::channel::caller::Caller;
use crate::channel::direct_reply_to::REPLY_TO;
use crate::channel::partition;
use crate::connection::names::Names;
use crate::errors::{Failure, no_queue, not_done, not_of_streams, queue_in_use, queue_not_empty};
use crate::values::arguments;

impl Topology {
    pub(crate) fn declare_queue(
        &mut self,
        caller: &mut Caller<'_, '_>,
        names: &mut Names,
        declare: &queue::Declare<'_>,
    ) -> Next {
        let asked = &*without_line_ends(declare.queue);
        if asked.starts_with(REPLY_TO) {
            return declare_reply_address(caller, declare);
        }
        if declare.passive {
            // Unlike everywhere else, no name is not the last queue here: so does RabbitMQ.
            let name = asked.to_owned();
            let found = looked_up(caller, &name, declare)?;
            return Ok(self.ask_status(caller, found, name, declare.no_wait));
        }
        let server_named = asked.is_empty();
        let name = match asked {
            "" => names.draw("amq.gen-"),
            name => name.to_owned(),
        };
        let exists = caller.catalog().queue(&caller.client.vhost, &name).is_some();
        // As in RabbitMQ: where the queue is there already, what it was declared with decides, not who asks.
        let dead_letter = text_argument(declare.arguments, "x-dead-letter-exchange");
        let dead_letter = dead_letter.filter(|_| !exists);
        caller.allow(Verb::DeclareQueue { queue: &name, dead_letter })?;
        let declaration = Declaration {
            vhost: caller.client.vhost.clone(),
            name: name.clone(),
            durable: declare.durable,
            auto_delete: declare.auto_delete,
            exclusive: declare.exclusive,
            // Who names an existing one of ours finds it.
            server_named: server_named || exists,
            arguments: arguments(declare.arguments),
            by: caller.client.owner(),
        }
        .with_default_type(caller.catalog());
        if let Some(stream) = declaration.reads().filter(|_| !exists) {
            // Who has a subscription gets what is in the stream.
            caller.allow(Verb::Read { queue: stream })?;
        }
        declaration.judge(caller.catalog())?;
        let no_wait = declare.no_wait;
        if exists {
            let found = find_queue(caller, &name)?;
            caller.counts.queues_declared += 1;
            return Ok(self.ask_status(caller, found, name, no_wait));
        }
        let command = declaration.clone().into_command_for(caller.catalog());
        let declaration = Box::new(declaration);
        change(caller, command, Pending::DeclareQueue { declaration, no_wait })
    }

    /// The catalog has the queue, or had one of its name before.
    pub(super) fn queue_declared(
        &mut self,
        caller: &mut Caller<'_, '_>,
        declaration: &Declaration,
        no_wait: bool,
        reply: &CatalogReply,
    ) -> Next {
        let CatalogReply::QueueDeclared { queue: id, group, created } = *reply else {
            return Err(not_done("the change"));
        };
        let queue = &declaration.name;
        if !created && let Some(existing) = caller.catalog().queue(&declaration.vhost, queue) {
            declaration.judge_again(existing)?;
        }
        caller.counts.queues_declared += 1;
        if !created {
            let found = catalog_queue(caller, declaration);
            let is_stream = found.is_some_and(|queue| queue.queue_type() == QueueType::Stream);
            let more = found.map_or_else(Vec::new, more_of);
            let found = Found { id, group, is_stream, more };
            return Ok(self.ask_status(caller, found, queue.clone(), no_wait));
        }
        self.last_queue.clone_from(queue);
        tell_declared(caller, queue, (0, 0), no_wait);
        Ok(None)
    }

    fn ask_status(
        &mut self,
        caller: &mut Caller<'_, '_>,
        found: Found,
        queue: String,
        no_wait: bool,
    ) -> Option<Pending> {
        let Found { id, group, is_stream, more: left } = found;
        self.last_queue.clone_from(&queue);
        if no_wait {
            return None;
        }
        ask_status_of(caller, group, id);
        Some(Pending::Status { queue, is_stream, no_wait, counts: (0, 0), left })
    }

    pub(crate) fn purge_queue(
        &self,
        caller: &mut Caller<'_, '_>,
        purge: &queue::Purge<'_>,
    ) -> Next {
        let queue = self.queue_name(purge.queue)?;
        caller.allow(Verb::Read { queue: &queue })?;
        let Found { id, group, is_stream, more: left } = find_queue(caller, &queue)?;
        if is_stream {
            return Err(not_of_streams("queue.purge", &queue, &caller.client.vhost));
        }
        ask_to_purge(caller, group, id);
        Ok(Some(Pending::Purge { no_wait: purge.no_wait, count: 0, left }))
    }

    pub(crate) fn delete_queue(
        &self,
        caller: &mut Caller<'_, '_>,
        delete: &queue::Delete<'_>,
    ) -> Next {
        let queue = self.queue_name(&without_line_ends(delete.queue))?;
        caller.allow(Verb::DeleteQueue { queue: &queue })?;
        let no_wait = delete.no_wait;
        if caller.catalog().queue(&caller.client.vhost, &queue).is_none() {
            tell_deleted(caller, 0, no_wait);
            return Ok(None);
        }
        let found = find_queue(caller, &queue)?;
        // As in RabbitMQ, a stream goes whoever reads it and whatever it keeps.
        let if_unused = delete.if_unused && !found.is_stream;
        let if_empty = delete.if_empty && !found.is_stream;
        let (id, group, left) = (found.id, found.group, found.more.clone());
        let deletion = Box::new(Deletion { queue, found, if_unused, no_wait, count: 0, left });
        if if_empty && !deletion.left.is_empty() {
            // A partition that is closed stays so: all are looked at before.
            ask_status_of(caller, group, id);
            return Ok(Some(Pending::Emptiness(deletion)));
        }
        ask_to_close(caller, (group, id), if_unused, if_empty);
        Ok(Some(Pending::CloseQueue(deletion)))
    }
}

/// A partition has said how many messages are ready in it.
pub(super) fn emptiness_told(
    caller: &mut Caller<'_, '_>,
    mut deletion: Box<Deletion>,
    ready: u64,
) -> Next {
    if ready > 0 {
        return Err(queue_not_empty(&deletion.queue, &caller.client.vhost));
    }
    if let Some(Partition { queue, group, .. }) = deletion.left.pop() {
        ask_status_of(caller, group, queue);
        return Ok(Some(Pending::Emptiness(deletion)));
    }
    let Found { id, group, ref more, .. } = deletion.found;
    deletion.left = more.clone();
    ask_to_close(caller, (group, id), deletion.if_unused, false);
    Ok(Some(Pending::CloseQueue(deletion)))
}

pub(super) fn ask_status_of(caller: &mut Caller<'_, '_>, group: GroupId, queue: QueueId) {
    caller.ask_after_appends(group, |ticket| Request::Status { ticket, group, queue });
}

pub(super) fn ask_to_purge(caller: &mut Caller<'_, '_>, group: GroupId, queue: QueueId) {
    caller.ask_after_appends(group, |ticket| Request::Purge { ticket, group, queue });
}

fn ask_to_close(
    caller: &mut Caller<'_, '_>,
    (group, queue): (GroupId, QueueId),
    if_unused: bool,
    if_empty: bool,
) {
    caller.ask_after_appends(group, |ticket| Request::CloseQueue {
        ticket,
        group,
        queue,
        if_unused,
        if_empty,
    });
}

fn catalog_queue<'s>(caller: &Caller<'_, 's>, declaration: &Declaration) -> Option<&'s Queue> {
    caller.catalog().queue(&declaration.vhost, &declaration.name)
}

/// What a passive declaration counts: the queue, or the one partition of it that its arguments name.
fn looked_up(
    caller: &Caller<'_, '_>,
    name: &str,
    declare: &queue::Declare<'_>,
) -> Result<Found, Failure> {
    let found = find_queue(caller, name)?;
    let one = partition::named(caller, usable_queue(caller, name)?, declare.arguments)?;
    Ok(match one {
        Some((Partition { queue: id, group, .. }, _)) => {
            Found { id, group, more: Vec::new(), ..found }
        }
        None => found,
    })
}

/// Whether a requester is still there: a reply address is declared to find out.
fn declare_reply_address(caller: &mut Caller<'_, '_>, declare: &queue::Declare<'_>) -> Next {
    let name = declare.queue;
    if name != REPLY_TO && !caller.step.view.replies.is_open(name) {
        return Err(no_queue(name, &caller.client.vhost));
    }
    let answer = queue::DeclareOk { queue: name, message_count: 0, consumer_count: 1 };
    caller.answer(declare.no_wait, &Method::QueueDeclareOk(answer));
    Ok(None)
}

/// A partition takes and gives nothing any more. When that is so of all, the catalog lets the queue go.
pub(super) fn closed(
    caller: &mut Caller<'_, '_>,
    mut deletion: Box<Deletion>,
    result: Result<u64, CloseError>,
) -> Next {
    let vhost = &caller.client.vhost;
    deletion.count += match result {
        Ok(_) if deletion.found.is_stream => 0,
        Ok(count) => count,
        Err(CloseError::NoQueue) => 0,
        Err(CloseError::InUse) => return Err(queue_in_use(&deletion.queue, vhost)),
        Err(CloseError::NotEmpty) => return Err(queue_not_empty(&deletion.queue, vhost)),
    };
    if let Some(Partition { queue, group, .. }) = deletion.left.pop() {
        // Who uses one of the partitions uses the first.
        ask_to_close(caller, (group, queue), false, false);
        return Ok(Some(Pending::CloseQueue(deletion)));
    }
    let Deletion { queue, found, no_wait, count, .. } = *deletion;
    let command = CatalogCommand::DeleteQueue {
        vhost: vhost.clone(),
        name: queue,
        queue: Some(found.id),
        by: Some(caller.client.owner()),
    };
    caller.ask(|ticket| Request::Catalog { ticket, command });
    Ok(Some(Pending::DeleteQueue { count, no_wait }))
}

/// `queue.declare-ok` with the counts of ready messages and of consumers.
pub(super) fn tell_declared(
    caller: &mut Caller<'_, '_>,
    queue: &str,
    (ready, consumer_count): (u64, u32),
    no_wait: bool,
) {
    let answer = queue::DeclareOk { queue, message_count: saturated(ready), consumer_count };
    caller.answer(no_wait, &Method::QueueDeclareOk(answer));
}

pub(super) fn tell_purged(caller: &mut Caller<'_, '_>, count: u64, no_wait: bool) {
    let answer = queue::PurgeOk { message_count: saturated(count) };
    caller.answer(no_wait, &Method::QueuePurgeOk(answer));
}

pub(super) fn tell_deleted(caller: &mut Caller<'_, '_>, count: u64, no_wait: bool) {
    let answer = queue::DeleteOk { message_count: saturated(count) };
    caller.answer(no_wait, &Method::QueueDeleteOk(answer));
}

/// A count as the wire has it.
fn saturated(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
