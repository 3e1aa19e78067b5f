//! What all pushes of one target share: the core of its connections, what sends on each, and who waits.

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::connection;
use super::connector::Connector;
use crate::target::apns::Settings;
use crate::target::apns::connections::{self, Check, Connections, Effect, Ending, Place, Ticket};
use crate::target::apns::device_tokens::DeviceTokens;
use crate::target::apns::provider_token::ProviderToken;

pub(super) struct Shared {
    state: Mutex<State>,
    provider_token: Option<Mutex<ProviderToken>>,
    pub(super) connector: Connector,
    chance: RandomState,
}

struct State {
    connections: Connections,
    device_tokens: DeviceTokens,
    /// By slot: the epoch, and what sends.
    senders: Vec<Option<(u64, SendRequest<Bytes>)>>,
    waiting: BTreeMap<Ticket, oneshot::Sender<Granted>>,
    tickets: u64,
    /// Why the last connection could not be had.
    why: String,
    tasks: JoinSet<()>,
    is_stopped: bool,
}

/// What a waiting push is told.
pub(super) enum Granted {
    Place(Place),
    Refused { after: Duration, why: String },
}

/// What came of asking for a connection.
pub(super) enum Asked {
    Sent(Place, Result<ResponseFuture, h2::Error>),
    Waits(Ticket, oneshot::Receiver<Granted>),
}

impl Shared {
    pub(super) fn new(
        settings: &Settings,
        connector: Connector,
        provider_token: Option<ProviderToken>,
    ) -> Arc<Self> {
        let connections = Connections::new(connections::Settings {
            connections: settings.connections,
            ping_after: settings.ping_after.0,
            ping_timeout: settings.ping_timeout.0,
            idle_close: settings.idle_close.0,
        });
        Arc::new(Self {
            state: Mutex::new(State {
                connections,
                device_tokens: DeviceTokens::default(),
                senders: (0..=settings.connections).map(|_| None).collect(),
                waiting: BTreeMap::new(),
                tickets: 0,
                why: String::new(),
                tasks: JoinSet::new(),
                is_stopped: false,
            }),
            provider_token: provider_token.map(Mutex::new),
            connector,
            chance: RandomState::new(),
        })
    }

    /// Uses the provider token. None: a certificate says who this is.
    pub(super) fn with_provider_token<T>(
        &self,
        what: impl FnOnce(&mut ProviderToken) -> T,
    ) -> Option<T> {
        let token = self.provider_token.as_ref()?;
        Some(what(&mut token.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Sends the request over a connection that has room, or waits for one.
    pub(super) fn ask(
        self: &Arc<Self>,
        token_hash: u64,
        request: &mut Option<http::Request<()>>,
        payload: &Bytes,
    ) -> Asked {
        let mut state = self.lock();
        state.tickets += 1;
        let ticket = Ticket(state.tickets);
        let trust = state.device_tokens.trust(token_hash);
        let mut effects = Vec::new();
        let place = state.connections.ask(ticket, trust, Instant::now(), &mut effects);
        let asked = match place {
            Some(place) => Asked::Sent(place, state.send(place, request, payload)),
            None => {
                let (sender, receiver) = oneshot::channel();
                state.waiting.insert(ticket, sender);
                Asked::Waits(ticket, receiver)
            }
        };
        self.carry_out(&mut state, effects);
        asked
    }

    /// Sends the request over the connection that it was granted.
    pub(super) fn send(
        &self,
        place: Place,
        request: &mut Option<http::Request<()>>,
        payload: &Bytes,
    ) -> Result<ResponseFuture, h2::Error> {
        self.lock().send(place, request, payload)
    }

    /// A push has ended. `is_good`: what its answer says of its device token.
    pub(super) fn finished(self: &Arc<Self>, place: Place, ending: Ending, token_hash: u64) {
        let mut state = self.lock();
        match ending {
            Ending::Accepted => state.device_tokens.learn(token_hash, true),
            Ending::TokenRefused => state.device_tokens.learn(token_hash, false),
            Ending::Answered | Ending::Unanswered => {}
        }
        self.tell(&mut state, |core, now, effects| core.finished(place, ending, now, effects));
    }

    /// A push does not wait any more: what it may have been granted meanwhile is given back.
    pub(super) fn withdraw(
        self: &Arc<Self>,
        ticket: Ticket,
        granted: &mut oneshot::Receiver<Granted>,
    ) {
        let mut state = self.lock();
        state.waiting.remove(&ticket);
        if !state.connections.withdraw(ticket)
            && let Ok(Granted::Place(place)) = granted.try_recv()
        {
            let ending = Ending::Unanswered;
            self.tell(&mut state, |core, now, effects| core.finished(place, ending, now, effects));
        }
    }

    pub(super) fn opened(self: &Arc<Self>, place: Place, limit: usize, sender: SendRequest<Bytes>) {
        let mut state = self.lock();
        if state.is_stopped {
            return;
        }
        state.senders[place.slot] = Some((place.epoch, sender));
        self.tell(&mut state, |core, now, effects| core.opened(place, limit, now, effects));
    }

    pub(super) fn limited(self: &Arc<Self>, place: Place, limit: usize) {
        let mut state = self.lock();
        self.tell(&mut state, |core, now, effects| core.limited(place, limit, now, effects));
    }

    pub(super) fn going_away(self: &Arc<Self>, place: Place) {
        let mut state = self.lock();
        state.forget(place);
        self.tell(&mut state, |core, now, effects| core.going_away(place, now, effects));
    }

    /// A connection could not be had. Until when to rest.
    pub(super) fn failed(self: &Arc<Self>, place: Place, why: String) -> Option<Instant> {
        let chance = self.chance.hash_one(place.epoch);
        let mut state = self.lock();
        state.why = why;
        self.tell(&mut state, |core, now, effects| core.failed(place, now, chance, effects))
    }

    /// A connection has ended. Until when to rest, if at all.
    pub(super) fn lost(self: &Arc<Self>, place: Place, why: &str) -> Option<Instant> {
        let chance = self.chance.hash_one(place.epoch);
        let mut state = self.lock();
        state.forget(place);
        why.clone_into(&mut state.why);
        self.tell(&mut state, |core, now, effects| core.lost(place, now, chance, effects))
    }

    /// A rest is over.
    pub(super) fn tick(self: &Arc<Self>) {
        let mut state = self.lock();
        self.tell(&mut state, |core, now, effects| core.tick(now, effects));
    }

    pub(super) fn pong(&self, place: Place) {
        self.lock().connections.pong(place, Instant::now());
    }

    /// What an open connection is to do now.
    pub(super) fn check(&self, place: Place) -> Check {
        let mut state = self.lock();
        let check = state.connections.check(place, Instant::now());
        match check {
            Check::Sleep { .. } | Check::Ping { .. } => {}
            Check::CloseIdle | Check::CloseSilent | Check::Leave => state.forget(place),
        }
        check
    }

    /// The end: connections are closed, and what is on them is given up.
    pub(super) fn stop(&self) {
        let mut state = self.lock();
        state.is_stopped = true;
        state.tasks.abort_all();
        state.senders.fill_with(|| None);
        state.waiting.clear();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the core something, and does what it wants done.
    fn tell<T>(
        self: &Arc<Self>,
        state: &mut State,
        what: impl FnOnce(&mut Connections, Instant, &mut Vec<Effect>) -> T,
    ) -> T {
        // Mostly stays empty, and then costs nothing.
        let mut effects = Vec::new();
        let result = what(&mut state.connections, Instant::now(), &mut effects);
        self.carry_out(state, effects);
        result
    }

    fn carry_out(self: &Arc<Self>, state: &mut State, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Open(place) if !state.is_stopped => {
                    while state.tasks.try_join_next().is_some() {}
                    state.tasks.spawn(connection::keep(Arc::clone(self), place));
                }
                Effect::Open(_) => {}
                Effect::Grant { ticket, place } => {
                    // After the stop nobody is there.
                    if let Some(waiting) = state.waiting.remove(&ticket) {
                        let is_told = waiting.send(Granted::Place(place)).is_ok();
                        assert!(is_told, "who does not wait any more has withdrawn");
                    }
                }
                Effect::Refuse { ticket, after } => {
                    let why = state.why.clone();
                    if let Some(waiting) = state.waiting.remove(&ticket) {
                        let _ = waiting.send(Granted::Refused { after, why });
                    }
                }
            }
        }
    }
}

impl State {
    fn forget(&mut self, place: Place) {
        let slot = &mut self.senders[place.slot];
        if slot.as_ref().is_some_and(|(epoch, _)| *epoch == place.epoch) {
            *slot = None;
        }
    }

    /// Takes the request if it is sent. An error means that APNs certainly has not seen it.
    fn send(
        &mut self,
        place: Place,
        request: &mut Option<http::Request<()>>,
        payload: &Bytes,
    ) -> Result<ResponseFuture, h2::Error> {
        let sender = self.senders[place.slot].as_mut().filter(|(epoch, _)| *epoch == place.epoch);
        let Some((_, sender)) = sender else { return Err(h2::Reason::REFUSED_STREAM.into()) };
        let request = request.take().expect("a request is sent once");
        let (response, mut stream) =
            match sender.poll_ready(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(ready) => ready.and_then(|()| sender.send_request(request, false))?,
                // The limit was lowered at this very moment: h2 holds the request back.
                Poll::Pending => sender.clone().send_request(request, false)?,
            };
        // If this fails, the response says why.
        let _ = stream.send_data(payload.clone(), true);
        Ok(response)
    }
}
