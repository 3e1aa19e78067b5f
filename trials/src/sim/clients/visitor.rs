//! Somebody who declares a queue of his own, uses it once, and deletes it, over and over.

use cluster::limits::LOST_MS;
use cluster::{Answer, Request, Ticket};
use machine::{
    Arguments, AttachError, Batch, CatalogCommand, CatalogReply, CloseError, ConsumerId,
    ConsumerSpec, GroupId, QueueId, SessionOwner,
};

use super::{Home, Outside, head_of};
use crate::history::What;
use crate::sim::agenda::Micros;
use crate::sim::{Diary, VHOST};

/// Messages of one visit.
const MESSAGES: u64 = 6;
/// A visit that takes longer is given up.
const TIMEOUT: Micros = 8_000_000;
const DECLARE: Ticket = Ticket(1);
const ATTACH: Ticket = Ticket(2);
const CLOSE: Ticket = Ticket(3);
const DELETE: Ticket = Ticket(4);
const GOODBYE: Ticket = Ticket(5);
/// Appends are numbered from here.
const APPEND: u64 = 100;

pub(super) struct Visitor {
    name: String,
    pub(super) home: Option<Home>,
    visits: u64,
    stage: Stage,
    since: Micros,
    queue: Option<(QueueId, GroupId)>,
    is_auto_delete: bool,
    is_durable: bool,
    appended: u64,
    got: u64,
    pub(super) finished: u64,
}

/// How far a visit is. One that takes too long ends its connection, and with it all of this: `Idle`.
///
/// ```text
///   Idle ──> Declaring ──> Attaching ──> Using ──plain queue──> Closing ──> Deleting ──> Idle
///                                          ├──auto-delete: it detaches────────^
///                                          └──it says goodbye──> Leaving ──> Idle, without a connection
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Idle,
    Declaring,
    Attaching,
    Using,
    Closing,
    Deleting,
    Leaving,
}

impl Visitor {
    pub(super) fn new(number: usize) -> Self {
        Self {
            name: format!("visitor-{number}"),
            home: None,
            visits: 0,
            stage: Stage::Idle,
            since: 0,
            queue: None,
            is_auto_delete: false,
            is_durable: false,
            appended: 0,
            got: 0,
            finished: 0,
        }
    }

    fn queue_name(&self) -> String {
        format!("{}-{}", self.name, self.visits)
    }

    fn goes_to(&mut self, stage: Stage, outside: &Outside<'_>) {
        (self.stage, self.since) = (stage, outside.now);
    }

    pub(super) fn act(&mut self, may_come: bool, outside: &mut Outside<'_>) {
        let Some(home) = self.home else {
            if may_come {
                self.home = outside.connect();
                self.goes_to(Stage::Idle, outside);
            }
            return;
        };
        let is_late = outside.now - self.since > TIMEOUT;
        match self.stage {
            Stage::Idle if may_come => self.declare(home, outside),
            Stage::Using if self.appended == MESSAGES && self.got >= MESSAGES => {
                self.end_visit(home, outside);
            }
            Stage::Idle
            | Stage::Declaring
            | Stage::Attaching
            | Stage::Using
            | Stage::Closing
            | Stage::Deleting
            | Stage::Leaving => {
                if is_late {
                    outside.leave(home);
                    self.end();
                }
            }
        }
    }

    fn owner(home: Home, outside: &Outside<'_>) -> SessionOwner {
        SessionOwner { node: outside.nodes[home.node].id, session: home.session }
    }

    fn declare(&mut self, home: Home, outside: &mut Outside<'_>) {
        self.visits += 1;
        (self.appended, self.got) = (0, 0);
        self.is_auto_delete = outside.chance.percent(40);
        self.is_durable = outside.chance.percent(70);
        let flags = [self.is_durable, self.is_auto_delete, false];
        let command = outside.declaration(home, &self.queue_name(), flags, Arguments::new());
        outside.ask(home, vec![Request::Catalog { ticket: DECLARE, command }]);
        self.goes_to(Stage::Declaring, outside);
    }

    /// Messages and their consumer, in one go, as a client does that waits for nothing.
    fn begin(&mut self, home: Home, outside: &mut Outside<'_>) {
        let Some((queue, group)) = outside.queue(home, &self.queue_name()) else {
            if !self.is_durable && !outside.is_member(home) {
                // Its node was removed in the same moment, and what was in the node's memory with it.
                outside.leave(home);
                return self.end();
            }
            let kind = match (self.is_durable, self.is_auto_delete) {
                (true, true) => "durable and auto-delete",
                (true, false) => "durable",
                (false, true) => "transient and auto-delete",
                (false, false) => "transient",
            };
            let (name, node) = (self.queue_name(), home.node + 1);
            let text = format!("{name} ({kind}) was declared and is not routed to on node {node}");
            return self.complain(&text, outside);
        };
        self.queue = Some((queue, group));
        let mut requests = Vec::new();
        let consumer = ConsumerId { session: home.session, number: 1 };
        let spec = ConsumerSpec { credit: 4, no_ack: false, ..ConsumerSpec::default() };
        let attach = || Request::Attach { ticket: ATTACH, group, queue, consumer, spec };
        let attaches_first = outside.chance.percent(50);
        requests.extend(attaches_first.then(attach));
        for number in 0..MESSAGES {
            let mut batch = Batch::new();
            let id = format!("{}:{number}", self.queue_name());
            batch.enqueue(&[queue], &[&head_of(&self.queue_name(), &id)], id.as_bytes());
            let ticket = Ticket(APPEND + number);
            requests.push(Request::Append { group, ticket, batch, settles: Vec::new() });
        }
        requests.extend((!attaches_first).then(attach));
        outside.ask(home, requests);
        self.goes_to(Stage::Attaching, outside);
    }

    fn end_visit(&mut self, home: Home, outside: &mut Outside<'_>) {
        let Some((queue, group)) = self.queue else { return };
        let consumer = ConsumerId { session: home.session, number: 1 };
        if self.is_auto_delete {
            outside.ask(
                home,
                vec![Request::Detach { ticket: DELETE, group, queue, consumer, takes_back: true }],
            );
            return self.goes_to(Stage::Deleting, outside);
        }
        if outside.chance.percent(20) {
            outside.ask(home, vec![Request::EndSession { ticket: GOODBYE }]);
            return self.goes_to(Stage::Leaving, outside);
        }
        let (if_unused, if_empty) = (false, false);
        let close = Request::CloseQueue { ticket: CLOSE, group, queue, if_unused, if_empty };
        outside.ask(home, vec![close]);
        self.goes_to(Stage::Closing, outside);
    }

    pub(super) fn answered(&mut self, answer: Answer, outside: &mut Outside<'_>) {
        let Some(home) = self.home else { return };
        match (self.stage, answer) {
            (Stage::Declaring, Answer::Catalog { ticket: DECLARE, reply }) => match reply {
                CatalogReply::QueueDeclared { .. } => self.begin(home, outside),
                other => self.complain(&format!("cannot declare: {other:?}"), outside),
            },
            (Stage::Attaching | Stage::Using, Answer::Attached { result, .. }) => {
                if let Err(error) = result {
                    // A queue in the memory of a node that was out of reach for long is gone. So is an auto-delete
                    // queue if the leader had attached this consumer, and then lost its node for that long.
                    let was_lost = outside.now - self.since > LOST_MS * 1000;
                    let may_be_gone = !self.is_durable || (self.is_auto_delete && was_lost);
                    if error == AttachError::NoQueue && may_be_gone {
                        outside.leave(home);
                        return self.end();
                    }
                    return self.complain(&format!("cannot consume: {error:?}"), outside);
                }
                self.goes_to(Stage::Using, outside);
            }
            (_, Answer::Appended { ticket }) if ticket.0 >= APPEND => self.appended += 1,
            (_, Answer::Delivered(delivery)) => {
                let ranges =
                    (delivery.first_seq..delivery.first_seq + u64::from(delivery.count)).into();
                self.got += u64::from(delivery.count);
                let (group, queue, consumer) = (delivery.group, delivery.queue, delivery.consumer);
                let (outcome, credit) = (machine::Outcome::Done, delivery.count);
                let settle = Request::Settle { group, queue, consumer, ranges, outcome, credit };
                outside.ask(home, vec![settle]);
            }
            (Stage::Closing, Answer::Closed { ticket: CLOSE, result }) => match result {
                Ok(_) => {
                    let command = CatalogCommand::DeleteQueue {
                        vhost: VHOST.to_owned(),
                        name: self.queue_name(),
                        queue: self.queue.map(|(queue, _)| queue),
                        by: Some(Self::owner(home, outside)),
                    };
                    outside.ask(home, vec![Request::Catalog { ticket: DELETE, command }]);
                    self.goes_to(Stage::Deleting, outside);
                }
                Err(CloseError::NoQueue) if !self.is_durable => {
                    outside.leave(home);
                    self.end();
                }
                Err(error) => self.complain(&format!("cannot delete: {error:?}"), outside),
            },
            (Stage::Deleting, Answer::Catalog { ticket: DELETE, .. }) => {
                if outside.queue(home, &self.queue_name()).is_some() {
                    self.complain("still routes to what is deleted", outside);
                }
                self.finish(outside);
            }
            // Here the deletion may be known a moment later.
            (Stage::Deleting, Answer::Detached { ticket: DELETE }) => self.finish(outside),
            (Stage::Leaving, Answer::SessionEnded { ticket: GOODBYE }) => self.end(),
            // A transient queue went with its node; or a deletion tells its consumer.
            (_, Answer::Cancelled { .. }) => {}
            // Not known to be done: the visit is over.
            (_, Answer::AppendFailed { .. } | Answer::Closed { .. }) => {
                outside.leave(home);
                self.end();
            }
            (stage, other) => self.complain(&format!("was told {other:?} in {stage:?}"), outside),
        }
    }

    fn finish(&mut self, outside: &Outside<'_>) {
        self.finished += 1;
        self.goes_to(Stage::Idle, outside);
    }

    fn complain(&mut self, text: &str, outside: &mut Outside<'_>) {
        let text = format!("{} {text}", self.name);
        outside.diary.saw(&self.name, What::Protocol { text });
        if let Some(home) = self.home {
            outside.leave(home);
        }
        self.end();
    }

    pub(super) fn disconnected(&mut self, node: usize) {
        if self.home.is_some_and(|home| home.node == node) {
            self.end();
        }
    }

    fn end(&mut self) {
        self.home = None;
        self.stage = Stage::Idle;
        self.queue = None;
    }

    /// At the end: a visit that does not come to its end.
    pub(super) fn stalled(&self, now: Micros, diary: &mut Diary) {
        if self.home.is_some() && self.stage != Stage::Idle && now - self.since > TIMEOUT {
            let text = format!("{} is {:?} since {} ms", self.name, self.stage, self.since / 1000);
            diary.saw(&self.name, What::Protocol { text });
        }
    }
}
