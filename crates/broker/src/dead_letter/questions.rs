//! What the dead-letter worker asks of the catalog before it goes on: whether it is fresh, and queues that keep
//! messages aside.

use std::collections::BTreeMap;

use cluster::{Request, Ticket};
use machine::{Arguments, Catalog, CatalogCommand, SessionOwner, Version};

use super::tickets::Tickets;
use crate::arguments::queue::Declaration;

/// Questions to the catalog that are not answered. `T` is what waits for a queue.
///
/// A node may route by a catalog that is older than a message: a queue that was bound before the message
/// was sent, at another node, may be missing. So before a message is dropped, the catalog is asked for
/// something that is answered only when this node has applied all that came before.
#[derive(Debug)]
pub(super) struct Questions<T> {
    owner: SessionOwner,
    /// The catalog is as new as what arrived up to this number.
    fresh_for: u64,
    /// The question for that, and which number it is for.
    asked: Option<(Ticket, u64)>,
    /// The catalog could not answer that: it is not asked again yet.
    rests: bool,
    /// Queues that are being declared, vhost and name, with what waits for them.
    declaring: BTreeMap<Ticket, (String, String, Vec<T>)>,
}

/// What an answer means.
#[derive(Debug)]
pub(super) enum Resolved<T> {
    /// The catalog is fresh, if that was asked.
    Nothing,
    /// Whether it is fresh cannot be said: to be asked again after `may_ask`.
    Refused,
    /// The queue is there.
    Declared(Vec<T>),
    /// It is not.
    Missing(Vec<T>),
}

impl<T> Questions<T> {
    pub(super) fn new(owner: SessionOwner) -> Self {
        Self { owner, fresh_for: 0, asked: None, rests: false, declaring: BTreeMap::new() }
    }

    /// Whether the catalog is as new as what arrived as number `arrival`. If not, that is asked for
    /// everything up to `arrivals`.
    pub(super) fn is_fresh(
        &mut self,
        catalog: &Catalog,
        arrival: u64,
        arrivals: u64,
        tickets: &mut Tickets,
        requests: &mut Vec<Request>,
    ) -> bool {
        // Who is alone routes by the catalog itself, and not by a copy.
        if arrival <= self.fresh_for || catalog.nodes().nth(1).is_none() {
            return true;
        }
        if self.asked.is_none() && !self.rests {
            let ticket = tickets.issue();
            self.asked = Some((ticket, arrivals));
            // Changes nothing: nothing is the dead-letter worker's own.
            let SessionOwner { node, session } = self.owner;
            let command = CatalogCommand::SessionEnded { node, session };
            requests.push(Request::Catalog { ticket, command });
        }
        false
    }

    /// Declares a queue that keeps messages aside; `who` waits for it.
    pub(super) fn declare(
        &mut self,
        agreed: Version,
        (vhost, name): (String, String),
        who: T,
        tickets: &mut Tickets,
        requests: &mut Vec<Request>,
    ) {
        for (known_vhost, known_name, waiting) in self.declaring.values_mut() {
            if (&vhost, &name) == (known_vhost, known_name) {
                waiting.push(who);
                return;
            }
        }
        let ticket = tickets.issue();
        let declaration = Declaration {
            vhost: vhost.clone(),
            name: name.clone(),
            durable: true,
            auto_delete: false,
            exclusive: false,
            // Its name may begin with `amq.`, as that of the queue does.
            server_named: true,
            arguments: Arguments::new(),
            by: self.owner,
        };
        let command = declaration.into_command(agreed);
        requests.push(Request::Catalog { ticket, command });
        self.declaring.insert(ticket, (vhost, name, vec![who]));
    }

    /// The catalog has answered; or, if not `is_applied`, could not.
    pub(super) fn resolve(
        &mut self,
        catalog: &Catalog,
        ticket: Ticket,
        is_applied: bool,
    ) -> Resolved<T> {
        if let Some((asked, arrival)) = self.asked
            && asked == ticket
        {
            self.asked = None;
            if !is_applied {
                self.rests = true;
                return Resolved::Refused;
            }
            self.fresh_for = arrival;
            return Resolved::Nothing;
        }
        match self.declaring.remove(&ticket) {
            None => Resolved::Nothing,
            Some((vhost, name, waiting)) if catalog.queue(&vhost, &name).is_some() => {
                Resolved::Declared(waiting)
            }
            Some((vhost, name, waiting)) => {
                tracing::warn!(
                    vhost,
                    queue = name,
                    "cannot declare the queue that keeps dead messages of a queue without a dead-letter \
                     exchange. The messages stay in their queue, and the node tries again"
                );
                Resolved::Missing(waiting)
            }
        }
    }

    /// Some time has passed.
    pub(super) fn may_ask(&mut self) {
        self.rests = false;
    }

    /// Nobody waits for a queue any more.
    pub(super) fn forget(&mut self) {
        self.declaring.clear();
    }
}
