//! Who tries, once all is quiet, whether sessions are held to the rules: on each node it logs in as the users whose rights
//! have changed, and asks for what they may and may not do. What is to come of it is told by `Rights`, which knows nothing
//! of how the broker judges.

mod cases;

use std::collections::VecDeque;
use std::sync::Arc;

use amqp::Method;
use broker::Config;
use broker::session::driver::Load;
use client::{Core, Event, Input, Options, Url};
use cluster::Answer;
use machine::SessionId;

use super::Outside;
use super::administrator::rights::{PASSWORD, Rights};
use super::connection::{Clock, Connection, config};
use crate::history::What;
use crate::sim::agenda::Micros;
use crate::sim::node::Node;
use cases::{Ask, Case, Seen};

/// Nothing takes longer while all is quiet.
const TIMEOUT: Micros = 8_000_000;

struct Open {
    connection: Connection,
    core: Core,
}

pub(super) struct Examiner {
    clock: Clock,
    config: Arc<Config>,
    /// What is to be tried still.
    cases: VecDeque<Case>,
    /// Connections of the case, by their number.
    open: Vec<Option<Open>>,
    /// What is asked now, since when.
    asked: Option<(Ask, Micros)>,
    planned: Micros,
    /// What was tried.
    pub(super) tried: u64,
}

impl Examiner {
    pub(super) fn new(clock: Clock) -> Self {
        Self {
            clock,
            config: Arc::new(config()),
            cases: VecDeque::new(),
            open: Vec::new(),
            asked: None,
            planned: Micros::MAX,
            tried: 0,
        }
    }

    /// From here on it tries everything on these nodes.
    pub(super) fn begin(&mut self, rights: &Rights, nodes: impl Iterator<Item = usize>) {
        self.cases = nodes.flat_map(|node| cases::all(rights, node)).collect();
    }

    pub(super) fn is_done(&self) -> bool {
        self.cases.is_empty()
    }

    pub(super) fn is_session(&self, session: SessionId, life: u64) -> bool {
        self.place(session, life).is_some()
    }

    fn place(&self, session: SessionId, life: u64) -> Option<usize> {
        self.open.iter().position(|open| {
            let home = open.as_ref().map(|open| open.connection.home);
            home.is_some_and(|home| home.session == session && home.life == life)
        })
    }

    /// When it is to have its next turn, if nobody has planned that yet.
    pub(super) fn plan(&mut self, nodes: &[Node], now: Micros) -> Option<Micros> {
        if self.cases.is_empty() {
            return None;
        }
        let mut due = now + 20_000;
        for Open { connection, core } in self.open.iter().flatten() {
            let is_paused = nodes[connection.home.node].is_paused;
            let core = core.deadline().map(|at| self.clock.due(at, now));
            due = connection.due(is_paused, now).into_iter().chain(core).fold(due, Micros::min);
        }
        let due = due.max(now + 1);
        (due < self.planned).then(|| {
            self.planned = due;
            due
        })
    }

    pub(super) fn answered(
        &mut self,
        session: SessionId,
        life: u64,
        answer: Answer,
        outside: &mut Outside<'_>,
    ) {
        let Some(place) = self.place(session, life) else { return };
        if let Some(open) = &mut self.open[place] {
            open.connection.answered(answer, outside);
        }
    }

    pub(super) fn turn(&mut self, outside: &mut Outside<'_>) {
        if self.planned <= outside.now {
            self.planned = Micros::MAX;
        }
        for place in 0..self.open.len() {
            self.run(place, outside);
        }
        if let Some((ask, since)) = &self.asked
            && outside.now - since > TIMEOUT
        {
            let ask = ask.clone();
            self.seen(&ask, Seen::Nothing, outside);
        }
        if self.asked.is_none() {
            self.go_on(outside);
        }
        for Open { connection, core } in self.open.iter_mut().flatten() {
            if core.has_output() {
                let bytes = core.output().split();
                connection.send(bytes, outside);
                let now = self.clock.at(outside.now);
                core.step(now, Input::Written, &mut Vec::new()).expect("writing is never wrong");
            }
        }
    }

    /// The next thing that is to be tried.
    fn go_on(&mut self, outside: &mut Outside<'_>) {
        let Some(case) = self.cases.front_mut() else { return };
        let Some(ask) = case.asks.pop_front() else {
            for open in self.open.drain(..).flatten() {
                let mut connection = open.connection;
                connection.hang_up(outside);
            }
            self.cases.pop_front();
            return;
        };
        self.tried += 1;
        self.asked = Some((ask.clone(), outside.now));
        let (node, user, vhost) = (case.node, case.user, case.vhost);
        if ask.is_connect() {
            let Some(home) = outside.connect_to(node) else {
                return self.seen(&ask, Seen::Nothing, outside);
            };
            let connection = Connection::connect(home, self.clock, &self.config, outside);
            let path = vhost.replace('/', "%2F");
            let url = format!("amqp://{user}:{PASSWORD}@localhost:5672/{path}");
            let url: Url = url.parse().expect("it is a URL");
            let options = Options { heartbeat: 0, ..Options::named("examiner") };
            let core = Core::new(&url, &options, self.clock.at(outside.now));
            self.open.push(Some(Open { connection, core }));
            return;
        }
        match self.open.get_mut(ask.connection()) {
            Some(Some(open)) => ask.begin(&mut open.core),
            Some(None) | None => self.seen(&ask, Seen::Nothing, outside),
        }
    }

    /// Both ends of a connection do what is due.
    fn run(&mut self, place: usize, outside: &mut Outside<'_>) {
        let Some(Some(open)) = self.open.get_mut(place) else { return };
        open.connection.run(Load::default(), outside);
        let mut events = Vec::new();
        let mut result = Ok(());
        if open.connection.receive(open.core.buffer(), outside) {
            result = open.core.step(self.clock.at(outside.now), Input::Received, &mut events);
        }
        if result.is_ok() && open.core.deadline().is_some_and(|at| at <= self.clock.at(outside.now))
        {
            let now = self.clock.at(outside.now);
            result = open.core.step(now, Input::DeadlinePassed, &mut events);
        }
        let is_at_end = open.connection.is_at_end();
        for event in events {
            self.heard(place, event, outside);
        }
        let code = match result {
            Err(error) => Some(error.code().map_or(Seen::Nothing, Seen::Refused)),
            Ok(()) if is_at_end => Some(Seen::Nothing),
            Ok(()) => None,
        };
        if let Some(seen) = code {
            self.end(place, outside);
            if let Some((ask, _)) = self.asked.clone().filter(|(ask, _)| ask.connection() == place)
            {
                self.seen(&ask, seen, outside);
            }
        }
    }

    fn heard(&mut self, place: usize, event: Event, outside: &mut Outside<'_>) {
        let Some((ask, _)) = self.asked.clone().filter(|(ask, _)| ask.connection() == place) else {
            return;
        };
        let Some(Some(open)) = self.open.get_mut(place) else { return };
        let seen = match event {
            Event::Opened if ask.is_connect() => Some(Seen::Done),
            Event::ChannelClosed { code, .. } => Some(Seen::Refused(code)),
            Event::Method { payload, .. } => {
                let method = Method::decode(&payload);
                method.ok().and_then(|method| ask.told(&method, &mut open.core))
            }
            Event::Opened
            | Event::Closed
            | Event::Blocked { .. }
            | Event::Unblocked
            | Event::Confirmed { .. }
            | Event::Content { .. } => None,
        };
        if let Some(seen) = seen {
            self.seen(&ask, seen, outside);
        }
    }

    fn seen(&mut self, ask: &Ask, seen: Seen, outside: &mut Outside<'_>) {
        self.asked = None;
        if ask.expected == seen {
            return;
        }
        let Some(case) = self.cases.front() else { return };
        let (user, vhost, node) = (case.user, case.vhost, case.node + 1);
        let text = format!("{user} in {vhost} at node {node}: {ask:?} comes to {seen:?}");
        outside.diary.saw("examiner", What::Protocol { text });
    }

    fn end(&mut self, place: usize, outside: &mut Outside<'_>) {
        if let Some(open) = self.open.get_mut(place).and_then(Option::take) {
            let mut connection = open.connection;
            connection.hang_up(outside);
        }
    }

    /// A node is gone, and with it what was tried there.
    pub(super) fn disconnected(&mut self, node: usize, outside: &mut Outside<'_>) {
        if self.cases.front().is_some_and(|case| case.node == node) {
            (0..self.open.len()).for_each(|place| self.end(place, outside));
            self.open.clear();
            self.asked = None;
            self.cases.pop_front();
        }
    }
}
