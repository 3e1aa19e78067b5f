//! The operator: takes nodes in and out while everything else goes on, as `millrace cluster add`, `remove`,
//! `replace` and `rebalance` do, one order after the other and one change of the catalog after the other.

use std::collections::{BTreeSet, VecDeque};

use cluster::{Answer, Request, Ticket};
use machine::{CatalogCommand, CatalogReply, Goal, NodeId, SessionId, Standing};

use super::agenda::{Event, Micros};
use super::node::{Node, Place};
use super::world::{Death, World};

/// Between two looks, from and to.
const LOOK: (Micros, Micros) = (20_000, 200_000);
/// A change that is not answered for so long is sent again over another node.
const PATIENCE: Micros = 5_000_000;
/// Between two orders, from and to.
const PAUSE: (Micros, Micros) = (300_000, 3_000_000);

/// What is left to be done of an order.
#[derive(Clone, Debug)]
enum Step {
    Change(CatalogCommand),
    /// What it has goes to others while it can still give it.
    Drain(usize),
    /// Until no group counts on the node, unless the catalog wants it to.
    Left(usize),
    /// Groups go where they should be.
    Balance,
    Start(usize),
    Stop(usize),
}

#[derive(Debug, Default)]
pub(super) struct Operator {
    steps: VecDeque<Step>,
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
        let is_late = self.operator.asked.is_some_and(|asked| now - asked > PATIENCE);
        let is_there = |(node, life, _): &(usize, u64, SessionId)| {
            let node = &self.nodes[*node];
            node.lives == *life && node.is_serving() && !node.is_paused
        };
        if is_late || !self.operator.home.as_ref().is_some_and(is_there) {
            self.operator.asked = None;
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
        } else {
            self.operator.steps.extend([Step::Drain(node), Step::Left(node)]);
        }
        let remove = CatalogCommand::RemoveNode { node: self.nodes[node].id };
        self.operator.steps.extend([Step::Change(remove), Step::Left(node), Step::Stop(node)]);
        if self.operator.home.is_some_and(|(home, ..)| home == node) {
            self.find_home();
        }
    }

    fn go_on_with_order(&mut self) {
        let Some((home, _, session)) = self.operator.home else { return };
        let Some(step) = self.operator.steps.front().cloned() else { return };
        match step {
            Step::Change(command) => {
                if let CatalogCommand::RemoveNode { node } = &command
                    && !self.is_majority_without(home, *node)
                {
                    return;
                }
                self.operator.asked = Some(self.agenda.now());
                self.operator.ticket += 1;
                let ticket = Ticket(self.operator.ticket);
                if let Some(life) = &mut self.nodes[home].life {
                    life.submit(session, vec![Request::Catalog { ticket, command }]);
                }
                self.wake(home);
            }
            Step::Drain(node) => self.place(home, Some(node), Goal::Repair),
            Step::Balance => self.place(home, None, Goal::Balance),
            Step::Left(node) => {
                if !self.counts_on(home, node) {
                    self.operator.steps.pop_front();
                }
            }
            Step::Start(node) => {
                self.operator.steps.pop_front();
                self.nodes[node].place = Place::Member;
                self.agenda.after(1_000, Event::Start { node });
            }
            Step::Stop(node) => {
                self.operator.steps.pop_front();
                self.nodes[node].place = Place::Removed;
                self.crash(node, Death::Kill);
            }
        }
    }

    /// The changes that bring groups where they should be, in place of the step.
    fn place(&mut self, home: usize, draining: Option<usize>, goal: Goal) {
        let down = self.down(home);
        let draining = draining.map(|node| self.nodes[node].id);
        let standing = |node: NodeId| match () {
            () if draining == Some(node) => Standing::Draining,
            () if down.contains(&node) => Standing::Down,
            () => Standing::Serving,
        };
        let Some(life) = &self.nodes[home].life else { return };
        let changes = life.catalog.placement_changes(standing, goal);
        self.operator.steps.pop_front();
        for command in changes.into_iter().rev() {
            self.operator.steps.push_front(Step::Change(command));
        }
    }

    /// The members that `home` cannot reach.
    fn down(&self, home: usize) -> BTreeSet<NodeId> {
        let is_down = |node: &Node| {
            let other = node.id.0 as usize - 1;
            let runs = node.life.is_some() && !node.is_paused;
            other != home && !(runs && self.network.is_open_between(home, other))
        };
        self.nodes.iter().filter(|node| is_down(node)).map(|node| node.id).collect()
    }

    fn is_majority_without(&self, home: usize, node: NodeId) -> bool {
        let Some(life) = &self.nodes[home].life else { return false };
        let down = self.down(home);
        let rest: Vec<NodeId> =
            life.catalog.nodes().map(|info| info.node).filter(|other| *other != node).collect();
        rest.iter().filter(|other| !down.contains(other)).count() * 2 > rest.len()
    }

    /// Whether a group that is kept at `home` has the node for a voter, and the catalog does not want that.
    fn counts_on(&self, home: usize, node: usize) -> bool {
        let Some(life) = &self.nodes[home].life else { return true };
        let id = self.nodes[node].id;
        let reports = life.shards.iter().flat_map(|shard| shard.report_groups(false));
        reports
            .into_iter()
            .any(|it| it.voters.contains(&id) && !life.catalog.voters(it.group).contains(&id))
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
        match answer {
            Answer::Catalog { ticket, reply } if ticket.0 == self.operator.ticket => {
                let step = self.operator.steps.pop_front();
                if let CatalogReply::Refused(refusal) = reply {
                    let text = format!("the operator is refused {step:?}: {refusal:?}");
                    match step {
                        // The home was not up to date: the next rebalance finds it out.
                        Some(Step::Change(CatalogCommand::SetVoters { .. })) => self.line(&text),
                        _ => self.complain(&text),
                    }
                }
            }
            // It is not known to be made, and is asked for again.
            _ => {}
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
    let add = |incarnation| {
        let address = super::node::address(id);
        Step::Change(CatalogCommand::AddNode { node: id, address, incarnation })
    };
    // Its incarnation is told when it comes.
    vec![add(0), add(1), Step::Start(node), Step::Balance]
}
