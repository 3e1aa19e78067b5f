//! The operator: takes nodes in and out while everything else goes on. What an order needs is decided by the product's
//! own `cluster::orders`, as for `millrace cluster add`, `remove` and `rebalance`.

use std::collections::VecDeque;

use cluster::orders::{Next, Order, Peer, Task, View};
use cluster::shard::Shard;
use cluster::{Answer, Request, Ticket};
use machine::{CatalogCommand, NodeId, NodeInfo, SessionId, Version};

use super::agenda::{Event, Micros};
use super::node::Place;
use super::world::{Death, World};

/// Between two looks, from and to.
const LOOK: (Micros, Micros) = (20_000, 200_000);
/// A change that is not answered for so long is sent again over another node.
const TIMEOUT: Micros = 5_000_000;
/// Between two orders, from and to.
const PAUSE: (Micros, Micros) = (300_000, 3_000_000);

/// What is left to be done.
#[derive(Clone, Debug)]
enum Step {
    Order(Order),
    /// The node comes and tells of itself.
    Admit(usize),
    Start(usize),
    Stop(usize),
}

#[derive(Debug, Default)]
pub(super) struct Operator {
    steps: VecDeque<Step>,
    /// The order that is the first step, if it was given to the home.
    task: Option<Task>,
    /// What it wants changed now.
    changes: VecDeque<CatalogCommand>,
    /// Node, life and session.
    home: Option<(usize, u64, SessionId)>,
    asked: Option<Micros>,
    rests_until: Micros,
    ticket: u64,
}

impl Operator {
    /// Whether its last order is carried out.
    pub(super) fn is_done(&self) -> bool {
        self.steps.is_empty()
    }

    /// The order is given anew: to another node, or after it was refused.
    fn ask_again(&mut self) {
        self.task = None;
        self.changes.clear();
    }
}

impl World {
    /// The operator looks what is to be done next.
    pub(super) fn operate(&mut self) {
        let next = self.chance.within(LOOK.0, LOOK.1);
        self.agenda.after(next, Event::Operator);
        let now = self.agenda.now();
        if self.operator.steps.is_empty() {
            if now >= self.operator.rests_until && !self.nemesis.is_over {
                self.give_order();
            }
            return;
        }
        let is_late = self.operator.asked.is_some_and(|asked| now - asked > TIMEOUT);
        let is_there = |(node, life, _): &(usize, u64, SessionId)| {
            let node = &self.nodes[*node];
            node.lives == *life && node.is_serving() && !node.is_paused
        };
        if is_late || !self.operator.home.as_ref().is_some_and(is_there) {
            self.operator.asked = None;
            self.operator.ask_again();
            self.find_home();
            return;
        }
        if self.operator.asked.is_none() {
            self.go_on_with_order();
        }
    }

    /// Another node, but not one that is about to go.
    fn find_home(&mut self) {
        // Sessions of another life have the same numbers.
        if let Some((node, lives, session)) = self.operator.home.take()
            && self.nodes[node].lives == lives
            && let Some(life) = &mut self.nodes[node].life
        {
            life.abandon(session);
            self.wake(node);
        }
        let goes = |step: &Step, node: usize| matches!(step, Step::Stop(it) if *it == node);
        let is_fit = |node: &usize| {
            let stays = !self.operator.steps.iter().any(|step| goes(step, *node));
            let found = &self.nodes[*node];
            stays && found.place == Place::Member && found.is_serving() && !found.is_paused
        };
        let fit: Vec<usize> = (0..self.nodes.len()).filter(is_fit).collect();
        if fit.is_empty() {
            return;
        }
        let node = fit[self.chance.within(0, fit.len() as u64) as usize];
        if let Some(session) = self.nodes[node].open_session() {
            self.operator.home = Some((node, self.nodes[node].lives, session));
        }
    }

    /// Joins while there are nodes that may, and nodes that go or are replaced, by chance.
    fn give_order(&mut self) {
        let now = self.agenda.now();
        self.operator.rests_until = now + self.chance.within(PAUSE.0, PAUSE.1);
        let all = |world: &Self, place: Place| -> Vec<usize> {
            (0..world.nodes.len()).filter(|node| world.nodes[*node].place == place).collect()
        };
        let (absent, members) = (all(self, Place::Absent), all(self, Place::Member));
        // Who makes up for what is damaged is not taken away.
        let may_go = self.nemesis.damaged.is_none() || members.len() > 3;
        let joiner = absent.first().copied();
        let goes = members[self.chance.within(0, members.len() as u64) as usize];
        match (joiner, self.chance.within(0, 10)) {
            (Some(node), 0..4) => {
                self.count("a node joins", node);
                self.operator.steps.extend(joining(node));
            }
            (Some(by), 4..8) if may_go => {
                self.count("a node is replaced", goes);
                self.leave(goes);
                self.operator.steps.extend(joining(by));
            }
            (Some(_) | None, _) if members.len() > 3 && may_go => {
                self.count("a node is removed", goes);
                self.leave(goes);
            }
            (Some(_) | None, _) => {}
        }
    }

    /// It gives what it has to others first; or its disk is lost, and it goes as it is.
    fn leave(&mut self, node: usize) {
        // While others take over what one had, there may be no majority without this one.
        let is_lost =
            self.nemesis.damaged.is_none() && self.is_settled() && self.chance.percent(30);
        if is_lost {
            self.count("a disk is lost", node);
            self.nemesis.damaged = Some(node);
            self.nodes[node].place = Place::Lost;
            self.crash(node, Death::PowerCut);
        }
        let order = Order::Remove { node: self.nodes[node].id };
        self.operator.steps.extend([Step::Order(order), Step::Stop(node)]);
        if self.operator.home.is_some_and(|(home, ..)| home == node) {
            self.find_home();
        }
    }

    fn go_on_with_order(&mut self) {
        let Some((home, _, session)) = self.operator.home else { return };
        if self.operator.changes.is_empty() {
            self.next_of_order(home);
        }
        let Some(command) = self.operator.changes.front().cloned() else { return };
        self.operator.asked = Some(self.agenda.now());
        self.operator.ticket += 1;
        let ticket = Ticket(self.operator.ticket);
        if let Some(life) = &mut self.nodes[home].life {
            life.submit(session, vec![Request::Catalog { ticket, command }]);
        }
        self.wake(home);
    }

    fn next_of_order(&mut self, home: usize) {
        let Some(step) = self.operator.steps.front().cloned() else { return };
        match step {
            Step::Order(order) => self.carry_out(home, order),
            Step::Admit(node) => {
                let node = NodeId(node as u64 + 1);
                let joiner = NodeInfo { node, address: super::node::address(node), incarnation: 1 };
                let Some(life) = &self.nodes[home].life else { return };
                match cluster::orders::admit(&life.catalog, joiner) {
                    Ok(command) => self.operator.changes.push_back(command),
                    // The home does not know yet that it was added.
                    Err(why) => self.line(&format!("node {} may not join yet: {why}", node.0)),
                }
            }
            Step::Start(node) => {
                self.operator.steps.pop_front();
                self.nodes[node].place = Place::Member;
                self.agenda.after(1_000, Event::Start { node });
            }
            Step::Stop(node) => {
                self.operator.steps.pop_front();
                self.line(&format!("node {} is taken away", node + 1));
                self.nodes[node].place = Place::Removed;
                self.crash(node, Death::Kill);
            }
        }
    }

    /// What the product's orders say is to be done next, as the home sees things.
    fn carry_out(&mut self, home: usize, order: Order) {
        let peers: Vec<Peer> = (0..self.nodes.len())
            .filter(|node| *node != home)
            .map(|node| Peer {
                node: self.nodes[node].id,
                is_up: self.nodes[node].life.is_some()
                    && !self.nodes[node].is_paused
                    && self.network.is_open_between(home, node),
                speaks: Some(self.nodes[node].speaks),
            })
            .collect();
        let Some(life) = &self.nodes[home].life else { return };
        let groups: Vec<_> =
            life.shards.iter().flat_map(|shard| shard.report_groups(false)).collect();
        let elsewhere: Vec<_> = life.shards.iter().flat_map(Shard::report_elsewhere).collect();
        let view = View {
            now_ms: self.agenda.now() / 1_000,
            node: self.nodes[home].id,
            address: &super::node::address(self.nodes[home].id),
            speaks: Version::NEWEST,
            catalog: &life.catalog,
            peers: &peers,
            groups: &groups,
            elsewhere: &elsewhere,
            catalog_leader: None,
        };
        let task = self.operator.task.get_or_insert_with(|| Task::new(order.clone()));
        match task.next(&view) {
            Next::Change(changes) => self.operator.changes = changes.into(),
            Next::Wait => {}
            Next::Done(_) => {
                self.line(&format!("{order:?} is done"));
                self.operator.ask_again();
                self.operator.steps.pop_front();
            }
            Next::Refused(why) => {
                self.operator.ask_again();
                self.line(&format!("the operator is refused {order:?}: {why}"));
            }
        }
    }

    /// What the operator is told. True: it was meant for it.
    pub(super) fn operator_hears(&mut self, session: SessionId, answer: &Answer) -> bool {
        // Sessions of the node's next life have the same numbers.
        let is_home = |(node, lives, home): (usize, u64, SessionId)| {
            home == session && self.nodes[node].lives == lives
        };
        if !self.operator.home.is_some_and(is_home) {
            return false;
        }
        // Whatever else it is told: the change is not known to be made, and is asked for again.
        if let Answer::Catalog { ticket, reply } = answer
            && ticket.0 == self.operator.ticket
        {
            let command = self.operator.changes.pop_front();
            if let Some(why) = cluster::orders::refusal(reply) {
                let text = format!("the catalog refuses {command:?}: {why}");
                match command {
                    // The home was not up to date, and finds it out when it is asked again.
                    Some(CatalogCommand::SetVoters { .. } | CatalogCommand::RemoveNode { .. }) => {
                        self.line(&text);
                    }
                    _ => self.complain(&text),
                }
                self.operator.ask_again();
            } else if let Some(Step::Admit(_)) = self.operator.steps.front() {
                self.operator.steps.pop_front();
            }
        }
        self.operator.asked = None;
        true
    }

    fn count(&mut self, what: &'static str, node: usize) {
        *self.nemesis.done.entry(what).or_default() += 1;
        self.line(&format!("{what}: node {}", node + 1));
    }
}

fn joining(node: usize) -> Vec<Step> {
    let id = NodeId(node as u64 + 1);
    let add = Order::Add { node: id, address: super::node::address(id) };
    vec![Step::Order(add), Step::Admit(node), Step::Start(node), Step::Order(Order::Rebalance)]
}
