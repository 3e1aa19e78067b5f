//! What operators do while the load runs and nodes fail, over the HTTP API of whichever node: a user gets another
//! password, a second user who publishes loses its rights and gets them again, policies come and go, a queue of the load
//! is paused, and dead letters are sent on.
//!
//! A node that has answered a change goes by it: that is tried at the same node at once. Where an answer is lost the change
//! may still be made, and that as late as a node that is cut off comes back: from then on another user is changed. What
//! consumers may see of pauses and retries is for the checker.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use client::{Address, Connection, Options, Url};
use serde_json::{Value, json};
use tokio::runtime::Handle;

use super::net::HTTP_PORT;
use crate::history::{Stage, What};
use crate::http::{self, Answer, GUEST};
use crate::workload::io::Recorder;
use crate::workload::special::{AGAIN, BRIEF, BRIEF_DEAD, DEAD, OTHERS, REFUSED};
use crate::workload::{Chance, body, crc32};

/// The name in histories.
const NAME: &str = "operations";
/// The queue that is paused.
const PAUSED: &str = "work";
/// How long a queue is paused, from and to, in milliseconds.
const PAUSE_MS: (u64, u64) = (200, 3_000);
/// Between two things that are done, from and to, in milliseconds.
const REST_MS: (u64, u64) = (20, 250);
/// Longest wait for an answer.
const ANSWER: Duration = Duration::from_secs(10);
/// In the end, when all nodes are there, everything is done within this time.
const ENDS: Duration = Duration::from_secs(90);
/// How long a retry is watched before something else is done.
const RETRIED: Duration = Duration::from_secs(5);
/// Of the users who publish.
const SECRET: &str = "another secret";

/// An operator at work.
#[derive(Debug)]
pub struct Operations {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Done, String>>,
}

/// What was done how often.
#[derive(Clone, Copy, Debug, Default)]
pub struct Done {
    passwords: u64,
    grants: u64,
    policies: u64,
    pauses: u64,
    retries: u64,
    sent_on: u64,
}

/// A kind of change.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Password,
    Grant,
    Policy,
    Pause,
    Retry,
}

const KINDS: [Kind; 5] = [Kind::Password, Kind::Grant, Kind::Policy, Kind::Pause, Kind::Retry];

struct Operator {
    /// Where the nodes' clients connect.
    nodes: Vec<SocketAddr>,
    runtime: Handle,
    recorder: Recorder,
    chance: Chance,
    done: Done,
    /// Which user changes its password, and which its rights.
    changing: u64,
    other: u64,
    /// Of the user that changes it, if it has one.
    password: Option<String>,
    published: u64,
    policies: u64,
    paused_until: Option<Instant>,
    /// Nodes that may still run a retry: it was not seen to end. A node runs one at a time of a queue.
    retrying: BTreeSet<SocketAddr>,
}

/// What came of a publish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    Confirmed,
    Refused,
    Nothing,
}

impl Operations {
    /// Begins; `nodes` are where clients connect.
    pub fn start(
        nodes: Vec<SocketAddr>,
        seed: u64,
        recorder: Recorder,
        runtime: Handle,
    ) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut operator = Operator {
            nodes,
            runtime,
            recorder,
            chance: Chance::named(seed, NAME),
            done: Done::default(),
            changing: 1,
            other: 1,
            password: None,
            published: 0,
            policies: 0,
            paused_until: None,
            retrying: BTreeSet::new(),
        };
        let told = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name(NAME.to_owned())
            .spawn(move || operator.work(&told))?;
        Ok(Self { stop, thread })
    }

    /// Every queue goes on, and nothing more is changed. What was done, or why that could not be brought to an end.
    pub fn end(self) -> Result<Done, String> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| "the operator panicked".to_owned())?
    }
}

impl Done {
    /// Some kind that was never done.
    pub fn missing(&self) -> Option<&'static str> {
        let Self { passwords, grants, policies, pauses, sent_on, retries: _ } = *self;
        let all = [
            (passwords, "password changed"),
            (grants, "right taken and given"),
            (policies, "policy changed"),
            (pauses, "queue paused"),
            (sent_on, "dead letter sent on"),
        ];
        all.into_iter().find(|(count, _)| *count == 0).map(|(_, what)| what)
    }
}

impl std::fmt::Display for Done {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { passwords, grants, policies, pauses, retries, sent_on } = self;
        write!(
            f,
            "operations: {passwords} passwords, {grants} rights, {policies} policies, {pauses} pauses, \
             {retries} retries of {sent_on} dead letters"
        )
    }
}

impl Operator {
    fn work(&mut self, stop: &AtomicBool) -> Result<Done, String> {
        let mut kinds = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            self.look_at_pause();
            let kind = kinds.pop().unwrap_or_else(|| {
                kinds = self.shuffled();
                Kind::Grant
            });
            self.act(kind);
            self.rest();
        }
        let deadline = Instant::now() + ENDS;
        // Each kind once more: now all nodes are there.
        for kind in KINDS {
            self.act(kind);
        }
        while self.paused_until.is_some() {
            self.paused_until = Some(Instant::now());
            self.look_at_pause();
            if Instant::now() > deadline {
                return Err(format!("{PAUSED} cannot be let go on"));
            }
            self.rest();
        }
        while !self.retries_are_over() {
            if Instant::now() > deadline {
                return Err("a retry of dead letters does not end".to_owned());
            }
            self.rest();
        }
        Ok(self.done)
    }

    fn act(&mut self, kind: Kind) {
        match kind {
            Kind::Password => self.change_password(),
            Kind::Grant => self.change_rights(),
            Kind::Policy => self.change_policy(),
            Kind::Pause => self.pause(),
            Kind::Retry => self.retry(),
        }
    }

    fn rest(&mut self) {
        std::thread::sleep(Duration::from_millis(self.chance.within(REST_MS.0, REST_MS.1)));
    }

    fn shuffled(&mut self) -> Vec<Kind> {
        let mut left = KINDS.to_vec();
        let mut all = Vec::new();
        while !left.is_empty() {
            all.push(left.swap_remove(self.chance.within(0, left.len() as u64) as usize));
        }
        all
    }

    fn any_node(&mut self) -> SocketAddr {
        self.nodes[self.chance.within(0, self.nodes.len() as u64) as usize]
    }

    /// None: nobody knows. A node says 5xx where it cannot do it or does not know.
    fn ask_as(
        &self,
        node: SocketAddr,
        user: (&str, &str),
        what: (&str, &str),
        body: &Value,
    ) -> Option<Answer> {
        let address = SocketAddr::new(node.ip(), HTTP_PORT);
        let answer = http::ask(address, user, what, body, ANSWER).ok()?;
        (answer.status < 500).then_some(answer)
    }

    /// Asks for what is never refused. A node that has lost its disk may know neither user nor queue for a while.
    fn change(&self, node: SocketAddr, what: (&str, &str), body: &Value) -> Option<Answer> {
        let answer = self.ask_as(node, GUEST, what, body)?;
        if !answer.is_done() && !knows_nothing(&answer) {
            let (method, path) = what;
            self.complain(&format!("{method} {path} comes to {}: {}", answer.status, answer.body));
        }
        Some(answer).filter(Answer::is_done)
    }

    fn complain(&self, text: &str) {
        self.recorder.saw(NAME, What::Protocol { text: format!("an operator: {text}") });
    }

    /// A user that no client of the load is.
    fn change_password(&mut self) {
        let node = self.any_node();
        let new = format!("secret {}", self.chance.number());
        let user = format!("changing-{}", self.changing);
        let body = json!({ "password": new, "tags": "monitoring" });
        if self.change(node, ("PUT", &format!("/users/{user}")), &body).is_none() {
            (self.password, self.changing) = (None, self.changing + 1);
            return;
        }
        self.done.passwords += 1;
        let old = self.password.replace(new.clone());
        let logs_in = |password: &str| {
            let what = ("GET", "/whoami");
            let answer = self.ask_as(node, (&user, password), what, &Value::Null)?;
            Some(answer.status != 401)
        };
        if logs_in(&new) == Some(false) {
            self.complain("a new password is refused by the node that has set it");
        }
        if old.is_some_and(|old| logs_in(&old) == Some(true)) {
            self.complain("an old password is taken by the node that has set a new one");
        }
    }

    /// Who may not publish is refused, and confirmed once it may.
    fn change_rights(&mut self) {
        if self.take_and_give_rights().is_none() {
            self.other += 1;
        } else {
            self.done.grants += 1;
        }
    }

    /// None: an answer was lost.
    fn take_and_give_rights(&mut self) -> Option<()> {
        let node = self.any_node();
        let user = format!("other-{}", self.other);
        let body = json!({ "password": SECRET, "tags": "" });
        self.change(node, ("PUT", &format!("/users/{user}")), &body)?;
        for (may, pattern, expected) in
            [(false, "^$", Said::Refused), (true, ".*", Said::Confirmed)]
        {
            let body = json!({ "configure": pattern, "write": pattern, "read": pattern });
            let path = format!("/permissions/%2F/{user}");
            self.change(node, ("PUT", &path), &body)?;
            let said = self.publish(node, &user);
            if said != Said::Nothing && said != expected {
                self.complain(&format!("{user} may publish: {may}, and that comes to {said:?}"));
            }
        }
        Some(())
    }

    fn publish(&mut self, node: SocketAddr, user: &str) -> Said {
        self.published += 1;
        let id = format!("{NAME}.{}:0", self.published);
        let (text, queue) = (body(&id), OTHERS);
        let (k, q, h) = (Stage::Inv, vec![queue.to_owned()], Some(crc32(&text)));
        self.recorder.saw(NAME, What::Pub { k, m: id.clone(), n: 0, q, h, returned: false });
        let (user, password) = (user.to_owned(), SECRET.to_owned());
        let url = format!("amqp://{node}/%2F").parse::<Url>().expect("it is a URL");
        let url = Url { user, password, ..url };
        let publish = async {
            let options = Options { answer_wait: ANSWER, ..Options::named(NAME) };
            let options = Options { retry_for: Duration::ZERO, ..options };
            let mut connection = Connection::open(&url, &options).await?;
            let properties = amqp::Properties {
                message_id: Some(&id),
                delivery_mode: Some(2),
                ..amqp::Properties::default()
            };
            let published = connection.publish(Address::queue(queue), &properties, &text).await;
            // It is gone either way, and what counts is said.
            drop(connection);
            published
        };
        // A node without room on its disk lets publishers wait, and the operator has a pause to end.
        let published =
            self.runtime.block_on(async { tokio::time::timeout(ANSWER, publish).await });
        let (said, k) = match published {
            Ok(Ok(())) => (Said::Confirmed, Stage::Ok),
            Ok(Err(error)) if error.code() == Some(403) => (Said::Refused, Stage::Fail),
            Ok(Err(_)) | Err(_) => (Said::Nothing, Stage::Info),
        };
        let q = Vec::new();
        self.recorder.saw(NAME, What::Pub { k, m: id, n: 0, q, h: None, returned: false });
        said
    }

    /// Limits far above all need, and another place for dead letters.
    fn change_policy(&mut self) {
        let node = self.any_node();
        let far = ("PUT", "/policies/%2F/far");
        let limits = match self.chance.within(0, 3) {
            0 => json!({ "max-length": 1_000_000_000 }),
            1 => json!({ "message-ttl": 86_400_000 }),
            _ => json!({ "max-length": 500_000_000, "message-ttl": 43_200_000 }),
        };
        let body = json!({ "pattern": "^(orders|work|fan-.*|cold)$", "definition": limits });
        let changed = match self.chance.percent(70) {
            true => self.change(node, far, &body).is_some(),
            false => self.forget(node, "/policies/%2F/far"),
        };
        let to = [BRIEF_DEAD, DEAD][self.chance.within(0, 2) as usize];
        self.policies += 1;
        let (x, q) = (format!("where.{}", self.policies), vec![REFUSED.to_owned()]);
        let (k, traits, dead) = (Stage::Inv, Default::default(), Some(to.to_owned()));
        self.recorder.saw(NAME, What::Policy { k, x, q, traits, dead });
        let letters = json!({ "dead-letter-exchange": "", "dead-letter-routing-key": to });
        let body = json!({ "pattern": format!("^{REFUSED}$"), "definition": letters });
        let sent = match self.chance.percent(80) {
            true => self.change(node, ("PUT", "/policies/%2F/where"), &body).is_some(),
            false => self.forget(node, "/policies/%2F/where"),
        };
        self.done.policies += u64::from(changed) + u64::from(sent);
    }

    /// Deletes what may not be there.
    fn forget(&self, node: SocketAddr, path: &str) -> bool {
        let answer = self.ask_as(node, GUEST, ("DELETE", path), &Value::Null);
        answer.is_some_and(|answer| answer.is_done() || answer.status == 404)
    }

    fn pause(&mut self) {
        if self.paused_until.is_some() {
            return;
        }
        let ms = self.chance.within(PAUSE_MS.0, PAUSE_MS.1);
        let stage = self.set_pause(true);
        // Whatever came of it ends.
        self.paused_until = Some(Instant::now() + Duration::from_millis(ms));
        self.done.pauses += u64::from(stage == Stage::Ok);
    }

    fn look_at_pause(&mut self) {
        let is_due = self.paused_until.is_some_and(|until| until <= Instant::now());
        if is_due && self.set_pause(false) == Stage::Ok {
            self.paused_until = None;
        }
    }

    fn set_pause(&mut self, on: bool) -> Stage {
        let node = self.any_node();
        let tell = |recorder: &Recorder, k| {
            recorder.saw(NAME, What::Pause { k, q: PAUSED.to_owned(), on });
        };
        tell(&self.recorder, Stage::Inv);
        let path = format!("/millrace/queues/%2F/{PAUSED}/pause");
        let method = if on { "PUT" } else { "DELETE" };
        let k = match self.ask_as(node, GUEST, (method, &path), &Value::Null) {
            Some(answer) if answer.status == 201 || (answer.status == 204 && !on) => Stage::Ok,
            // It was paused already by what was asked before, and its leader may not go by it yet.
            Some(answer) if answer.status == 204 || knows_nothing(&answer) => Stage::Info,
            Some(answer) => {
                let Answer { status, body } = answer;
                self.complain(&format!("{method} {path} comes to {status}: {body}"));
                Stage::Info
            }
            None => Stage::Info,
        };
        tell(&self.recorder, k);
        k
    }

    /// What has expired goes where it is consumed.
    fn retry(&mut self) {
        let node = self.any_node();
        let path = format!("/millrace/queues/%2F/{BRIEF_DEAD}/retry");
        let mut body = json!({ "queue": AGAIN, "died_in": BRIEF, "max_retries": 3 });
        if self.chance.percent(30) {
            body["limit"] = json!(self.chance.within(1, 200));
        }
        // Which letters it takes, nobody is told: from here on it may be any.
        let (k, q, to) = (Stage::Inv, BRIEF_DEAD.to_owned(), vec![AGAIN.to_owned()]);
        self.recorder.saw(NAME, What::Retry { k, q, m: None, to });
        // One that waited for a full disk may run for longer than it was watched.
        let may_run = !self.retrying.insert(node);
        let Some(begun) = self.ask_as(node, GUEST, ("POST", &path), &body) else { return };
        if !begun.is_done() {
            if !(knows_nothing(&begun) || (may_run && runs_still(&begun))) {
                self.complain(&format!("POST {path} comes to {}: {}", begun.status, begun.body));
            }
            return;
        }
        self.done.retries += 1;
        let Some(id) = begun.body["id"].as_str().map(str::to_owned) else {
            return self.complain(&format!("a retry has no id: {}", begun.body));
        };
        let path = format!("/millrace/retries/{id}");
        let deadline = Instant::now() + RETRIED;
        let mut sent = begun.body["sent"].as_u64().unwrap_or(0);
        let mut is_over = begun.body["state"] != "running";
        while !is_over && Instant::now() < deadline {
            self.rest();
            // The node that carries it out may be gone, and the retry with it.
            let shown = self.ask_as(node, GUEST, ("GET", &path), &Value::Null);
            let Some(shown) = shown.filter(Answer::is_done) else { break };
            sent = shown.body["sent"].as_u64().unwrap_or(sent);
            is_over = shown.body["state"] != "running";
        }
        if is_over {
            self.retrying.remove(&node);
        }
        self.done.sent_on += sent;
    }

    /// No node that answers runs a retry, and one does answer.
    fn retries_are_over(&self) -> bool {
        let what = ("GET", "/millrace/retries");
        let asked = self.nodes.iter().map(|&node| self.ask_as(node, GUEST, what, &Value::Null));
        let mut answers = asked.flatten().filter(Answer::is_done).peekable();
        let is_over = |answer: Answer| {
            let list = answer.body.as_array();
            list.is_some_and(|list| list.iter().all(|retry| retry["state"] != "running"))
        };
        answers.peek().is_some() && answers.all(is_over)
    }
}

fn runs_still(answer: &Answer) -> bool {
    let reason = answer.body["reason"].as_str().unwrap_or_default();
    answer.status == 400 && reason.ends_with("of this queue runs still")
}

fn knows_nothing(answer: &Answer) -> bool {
    matches!(answer.status, 401 | 404)
}
