//! The one that declares the queues and asks what is left in them.

use cluster::{Answer, Request, Ticket};
use machine::{Arguments, CatalogCommand, CatalogReply, QueueId, SessionOwner};

use super::{Home, Kind, Outside, QUEUES};
use crate::history::What;
use crate::sim::agenda::Micros;
use crate::sim::{Diary, VHOST};

/// A question that is not answered after so long is asked again over another connection.
const PATIENCE: Micros = 10_000_000;

#[derive(Default)]
pub(super) struct Control {
    pub(super) home: Option<Home>,
    queues: [Option<QueueId>; QUEUES.len()],
    /// Messages left per queue, as last told.
    left: [Option<u64>; QUEUES.len()],
    /// Questions without an answer, and since when.
    asking: usize,
    asked: Micros,
}

impl Control {
    pub(super) fn act(&mut self, asks: bool, outside: &mut Outside<'_>) {
        let Some(home) = self.home else {
            self.home = outside.connect();
            self.asking = 0;
            return;
        };
        if self.asking > 0 {
            if outside.now - self.asked > PATIENCE {
                outside.leave(home);
                self.home = None;
            }
            return;
        }
        let missing = |(number, plan): (usize, &super::Plan)| {
            (plan.kind == Kind::Durable && self.queues[number].is_none()).then_some(number)
        };
        let missing: Vec<usize> = QUEUES.iter().enumerate().filter_map(missing).collect();
        let mut requests = Vec::new();
        for number in missing {
            let command = CatalogCommand::DeclareQueue {
                vhost: VHOST.to_owned(),
                name: QUEUES[number].name.to_owned(),
                durable: true,
                auto_delete: false,
                exclusive: false,
                server_named: false,
                arguments: Arguments::new(),
                by: SessionOwner { node: outside.nodes[home.node].id, session: home.session },
            };
            requests.push(Request::Catalog { ticket: Ticket(number as u64), command });
        }
        if requests.is_empty() && asks {
            self.left = Default::default();
            for (number, plan) in QUEUES.iter().enumerate() {
                let found = outside.queue(home, plan.name).filter(|_| plan.kind == Kind::Durable);
                let Some((queue, group)) = found else { continue };
                let ticket = Ticket(number as u64);
                requests.push(Request::Status { ticket, group, queue });
            }
        }
        if !requests.is_empty() {
            self.asking = requests.len();
            self.asked = outside.now;
            outside.ask(home, requests);
        }
    }

    pub(super) fn answered(&mut self, answer: Answer, outside: &mut Outside<'_>) {
        self.asking = self.asking.saturating_sub(1);
        match answer {
            Answer::Catalog { ticket, reply: CatalogReply::QueueDeclared { queue, .. } } => {
                let number = ticket.0 as usize;
                let before = self.queues[number].replace(queue);
                if before.is_some_and(|before| before != queue) {
                    let text = format!("{} is another queue than before", QUEUES[number].name);
                    outside.diary.saw("control", What::Protocol { text });
                }
                if let Some(found) =
                    self.home.and_then(|home| outside.queue(home, QUEUES[number].name))
                    && found.0 == queue
                {
                    return;
                }
                let text = format!("{} was declared and is not routed to", QUEUES[number].name);
                outside.diary.saw("control", What::Protocol { text });
            }
            Answer::Status { ticket, status } => {
                let count = status.map(|status| status.ready + status.unsettled);
                self.left[ticket.0 as usize] = count;
            }
            // A change of the catalog that is not known to be made is asked for again.
            Answer::AppendFailed { .. } => {}
            other => {
                let text = format!("control was told {other:?}");
                outside.diary.saw("control", What::Protocol { text });
            }
        }
    }

    pub(super) fn disconnected(&mut self, node: usize) {
        if self.home.is_some_and(|home| home.node == node) {
            self.home = None;
            self.asking = 0;
        }
    }

    /// What was told so far does not count any more.
    pub(super) fn forget(&mut self) {
        self.left = Default::default();
    }

    pub(super) fn is_drained(&self) -> bool {
        let is_empty = |(number, plan): (usize, &super::Plan)| {
            plan.kind != Kind::Durable || self.left[number] == Some(0)
        };
        QUEUES.iter().enumerate().all(is_empty)
    }

    pub(super) fn drained(&mut self, diary: &mut Diary) {
        for (plan, left) in QUEUES.iter().zip(&self.left) {
            if let (Kind::Durable, Some(left)) = (plan.kind, *left) {
                diary.saw("control", What::Drained { q: plan.name.to_owned(), node: 1, left });
            }
        }
    }
}
