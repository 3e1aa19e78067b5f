//! Runs one script and gives it back as it should be: the lines of clients as they stand, those of the server and
//! the cluster as they came.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use broker::Config;
use broker::population::Population;
use broker::session::{Input, Outputs, Reply, ReplyAddresses, ReplyOrder, Session, View};
use cluster::{Alarms, Answer, Request};
use machine::{CatalogCommand, ConsumerChange, SessionId, UserLimits, Version, VhostLimits};

use crate::fake_cluster::FakeCluster;
use crate::wire::{self, Spec};

/// Reply addresses of all connections of a script.
#[derive(Default)]
struct Addresses(BTreeMap<String, usize>);

impl ReplyAddresses for Addresses {
    fn is_open(&self, address: &str) -> bool {
        self.0.contains_key(address)
    }
}

struct Connection {
    session: Session,
    id: SessionId,
    out: Outputs,
    is_closed: bool,
}

struct Runner {
    methods: BTreeMap<String, Spec>,
    config: Arc<Config>,
    now: Instant,
    cluster: FakeCluster,
    connections: BTreeMap<usize, Connection>,
    addresses: Addresses,
    population: RefCell<Population>,
    replies: Vec<Reply>,
    /// The cluster answers only when told to.
    is_by_hand: bool,
    shows_greeting: bool,
    /// Answers that were held back, by the ticket that the script shows.
    held: Vec<(usize, Answer)>,
    result: Vec<String>,
    /// The reply address made up last: what `<reply-to>` stands for.
    last_reply_to: String,
}

pub(crate) fn run(script: &str) -> String {
    let mut runner = Runner {
        methods: wire::methods(),
        config: Arc::new(Config::default()),
        now: Instant::now(),
        cluster: FakeCluster::new(),
        connections: BTreeMap::new(),
        addresses: Addresses::default(),
        population: RefCell::default(),
        replies: Vec::new(),
        is_by_hand: false,
        shows_greeting: false,
        held: Vec::new(),
        result: Vec::new(),
        last_reply_to: String::new(),
    };
    for line in script.lines() {
        let is_output = line.starts_with(['S', '>', '!']);
        if is_output || line == "closed" || line.starts_with("closed ") {
            continue;
        }
        runner.result.push(line.to_owned());
        runner.line(line);
    }
    runner.result.join("\n") + "\n"
}

impl Runner {
    fn line(&mut self, line: &str) {
        let words = wire::words(line);
        let Some(first) = words.first() else { return };
        if first.starts_with('#') {
            return;
        }
        match first.strip_prefix('C') {
            Some(number) => {
                let number = if number.is_empty() { 1 } else { number.parse().unwrap() };
                let bytes = self.client_bytes(&words[1..]);
                self.receive(number, &bytes);
            }
            None if first == "<" => self.release(&words[1..]),
            None => self.directive(&words),
        }
    }

    /// What a client's line is on the wire.
    fn client_bytes(&self, words: &[String]) -> Vec<u8> {
        match words[0].as_str() {
            "protocol-header" => b"AMQP\0\0\x09\x01".to_vec(),
            "bytes" => {
                let hex: String = words[1..].concat();
                let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
                (0..hex.len()).step_by(2).map(byte).collect()
            }
            "text" => words[1..].join(" ").into_bytes(),
            "together" => {
                let rest = words[1..].join(" ");
                rest.split(" & ").flat_map(|part| self.client_bytes(&wire::words(part))).collect()
            }
            channel => {
                let channel: u16 = channel.parse().unwrap();
                let values = wire::pairs(&words[2..]);
                match words[1].as_str() {
                    "heartbeat" => wire::frame(8, channel, &[]),
                    "body" => wire::frame(3, channel, values["is"].as_bytes()),
                    "big-body" => {
                        wire::frame(3, channel, &vec![b'x'; values["bytes"].parse().unwrap()])
                    }
                    "header" => {
                        let bytes = values["bytes"].parse().unwrap();
                        wire::header(channel, bytes, &wire::properties(&values))
                    }
                    "method-frame" => {
                        let payload: Vec<u8> = values["is"]
                            .split('.')
                            .map(|byte| byte.parse::<u8>().unwrap())
                            .collect();
                        wire::frame(1, channel, &payload)
                    }
                    "publish-only" => {
                        let spec = &self.methods["basic.publish"];
                        wire::frame(1, channel, &wire::encode(spec, &values))
                    }
                    name => {
                        let found = self.methods.get(name);
                        let spec = found.unwrap_or_else(|| panic!("no such method: {name}"));
                        let mut values = values;
                        for value in values.values_mut() {
                            *value = value.replace("<reply-to>", &self.last_reply_to);
                        }
                        wire::message(spec, channel, &values)
                    }
                }
            }
        }
    }

    fn directive(&mut self, words: &[String]) {
        let values = wire::pairs(&words[1..]);
        let number = values.get("connection").map_or(1, |number| number.parse().unwrap());
        match words[0].as_str() {
            "by-hand" => self.is_by_hand = true,
            "greeting" => self.shows_greeting = true,
            "config" => self.configure(&values),
            "user" => {
                let text = |name: &str| values.get(name).cloned().unwrap_or_default();
                let password = broker::password::hash(&text("password"), [1; 16]);
                self.cluster.change(CatalogCommand::PutUser {
                    name: text("name"),
                    password_hash: password,
                    tags: values.get("tag").cloned().into_iter().collect(),
                });
                if values.contains_key("configure") {
                    self.cluster.change(CatalogCommand::SetPermissions {
                        user: text("name"),
                        vhost: "/".to_owned(),
                        configure: text("configure"),
                        write: text("write"),
                        read: text("read"),
                    });
                }
            }
            "topic" | "user-limits" | "vhost-limits" => self.restrict(&words[0], &values),
            "agree" => {
                let to = Version(values["version"].parse().unwrap());
                self.cluster.change(CatalogCommand::RaiseVersion { to });
            }
            "delete-vhost" => {
                self.cluster.change(CatalogCommand::DeleteVhost { name: "/".to_owned() });
            }
            "connect" => self.connect(number, &values),
            "login" => self.login(number, &values),
            "wait" => {
                let ms = words[1].trim_end_matches("ms").parse().unwrap();
                self.now += Duration::from_millis(ms);
                self.cluster.pass(ms);
                let numbers: Vec<usize> = self.connections.keys().copied().collect();
                for number in numbers {
                    let deadline = self.connections[&number].session.deadline();
                    if deadline.is_some_and(|at| at <= self.now) {
                        self.step(number, Input::DeadlinePassed);
                    }
                }
                self.pump();
            }
            "alarm" => {
                let has = |name: &str| values.contains_key(name);
                self.cluster.alarms = Alarms { memory: has("memory"), disk: has("disk") };
                let alarms = self.cluster.alarms;
                let numbers: Vec<usize> = self.connections.keys().copied().collect();
                for number in numbers {
                    self.step(number, Input::Answered(&mut vec![Answer::Alarms(alarms)]));
                }
            }
            "reads" => {
                let connection = &self.connections[&number];
                let reads = connection.session.wants_input(connection.out.bytes.len());
                assert_eq!(values["is"], reads.to_string(), "whether the socket is read");
            }
            "stop" => self.step(number, Input::Answered(&mut vec![Answer::Stopping])),
            "lost" => {
                let connection = self.connections.remove(&number).unwrap();
                self.addresses.0.retain(|_, of| *of != number);
                self.population.borrow_mut().leave(connection.id);
                self.cluster.end_session(connection.id, None);
                self.pump();
            }
            other => panic!("no such line: {other}"),
        }
    }

    /// What a cluster of version 9 can restrict.
    fn restrict(&mut self, what: &str, values: &BTreeMap<String, String>) {
        self.cluster.change(CatalogCommand::RaiseVersion { to: Version::POLICIES });
        let text = |name: &str| values.get(name).cloned().unwrap_or_default();
        let limit = |name: &str| values.get(name).map(|max| max.parse().unwrap());
        let (user, vhost) = (text("user"), "/".to_owned());
        self.cluster.change(match what {
            "topic" => CatalogCommand::SetTopicPermissions {
                user,
                vhost,
                exchange: text("exchange"),
                write: text("write"),
                read: text("read"),
            },
            "user-limits" => {
                let (max_connections, max_channels) = (limit("connections"), limit("channels"));
                let limits = UserLimits { max_connections, max_channels };
                CatalogCommand::SetUserLimits { user, change: limits.into() }
            }
            _ => {
                let (max_connections, max_queues) = (limit("connections"), limit("queues"));
                let limits = VhostLimits { max_connections, max_queues };
                CatalogCommand::SetVhostLimits { vhost, change: limits.into() }
            }
        });
    }

    fn configure(&mut self, values: &BTreeMap<String, String>) {
        let mut config = (*self.config).clone();
        for (name, value) in values {
            match name.as_str() {
                "message-bytes-max" => config.message_bytes_max = value.parse().unwrap(),
                "consumers-per-channel-max" => {
                    config.consumers_per_channel_max = value.parse().unwrap();
                }
                "consumer-timeout-s" => {
                    config.consumer_timeout = Duration::from_secs(value.parse().unwrap());
                }
                "in-flight-bytes-max" => config.in_flight_bytes_max = value.parse().unwrap(),
                "channel-max" => config.channel_max = value.parse().unwrap(),
                other => panic!("no such setting: {other}"),
            }
        }
        self.config = Arc::new(config);
    }

    /// A new connection that has said nothing.
    fn connect(&mut self, number: usize, values: &BTreeMap<String, String>) {
        let id = SessionId(number as u64);
        let peer = values.get("from").map_or("127.0.0.1", String::as_str);
        let peer = format!("{peer}:40000").parse().unwrap();
        let config = Arc::clone(&self.config);
        let seed = [number as u8; 32];
        let session = Session::new(config, id, crate::NODE, peer, seed, self.now, 0);
        let out = Outputs::default();
        self.connections.insert(number, Connection { session, id, out, is_closed: false });
    }

    /// The handshake, which is shown only where it is the subject.
    fn login(&mut self, number: usize, values: &BTreeMap<String, String>) {
        self.connect(number, values);
        let shown = self.result.len();
        let user = values.get("user").map_or("guest", String::as_str);
        let without = values.get("without").map_or("", String::as_str);
        let all = [
            "authentication_failure_close",
            "consumer_cancel_notify",
            "connection.blocked",
            "basic.nack",
        ];
        let capabilities: Vec<String> = all
            .iter()
            .filter(|name| **name != without)
            .map(|name| format!("{name}=bool:true"))
            .collect();
        let heartbeat = values.get("heartbeat").map_or("0", String::as_str);
        let frame_max = values.get("frame-max").map_or("131072", String::as_str);
        let lines = [
            "protocol-header".to_owned(),
            format!(
                "0 connection.start-ok client-properties={{capabilities={{{}}}}} mechanism=PLAIN \
                 response=\\0{user}\\0{user} locale=en_US",
                capabilities.join(" ")
            ),
            format!(
                "0 connection.tune-ok channel-max=2047 frame-max={frame_max} heartbeat={heartbeat}"
            ),
            "0 connection.open virtual-host=/".to_owned(),
        ];
        for line in lines {
            let bytes = self.client_bytes(&wire::words(&line));
            self.receive(number, &bytes);
        }
        let last = self.result.last().unwrap();
        assert!(last.ends_with("connection.open-ok"), "the login failed: {last}");
        self.result.truncate(shown);
    }

    fn receive(&mut self, number: usize, bytes: &[u8]) {
        let connection = self.connections.get_mut(&number).expect("login or connect comes first");
        connection.session.buffer().extend_from_slice(bytes);
        self.step(number, Input::Received);
    }

    fn step(&mut self, number: usize, input: Input<'_>) {
        let in_flight_bytes =
            self.connections.values().map(|one| one.session.in_flight_bytes()).sum();
        let connection = self.connections.get_mut(&number).unwrap();
        let view = View {
            catalog: &self.cluster.catalog,
            alarms: self.cluster.alarms,
            in_flight_bytes,
            outbound_bytes: 0,
            consumers: 0,
            replies: &self.addresses,
            quotas: &self.population,
        };
        connection.session.step(self.now, &view, input, &mut connection.out);
        let channels = connection.session.channel_count();
        self.population.borrow_mut().set_channels(connection.id, channels);
        self.collect(number);
        self.pump();
    }

    /// Takes what a session put out: shows its frames, hands on its requests.
    fn collect(&mut self, number: usize) {
        let connection = self.connections.get_mut(&number).unwrap();
        let id = connection.id;
        let bytes = connection.out.bytes.split();
        let mark = if number == 1 { String::new() } else { number.to_string() };
        for line in wire::lines(&self.methods, &bytes) {
            // The same for everybody: shown where the handshake is the subject.
            let is_greeting = line.starts_with("0 connection.start ");
            if !is_greeting || self.shows_greeting {
                self.result.push(format!("S{mark:1} {line}"));
            }
        }
        let requests = std::mem::take(&mut connection.out.requests);
        let orders = std::mem::take(&mut connection.out.replies);
        let verify = connection.out.verify.take();
        let closes = connection.out.close && !connection.is_closed;
        connection.is_closed |= connection.out.close;
        for order in orders {
            match order {
                ReplyOrder::Open(address) => {
                    self.last_reply_to.clone_from(&address);
                    self.addresses.0.insert(address, number);
                }
                ReplyOrder::Close(address) => {
                    self.addresses.0.remove(&address);
                }
                ReplyOrder::Send(reply) => self.replies.push(reply),
            }
        }
        for request in requests {
            if self.is_by_hand {
                self.result.extend(shown(&request).map(|text| format!(">  {text}")));
            }
            self.cluster.ask(id, request);
        }
        if let Some(verify) = verify {
            let password = String::from_utf8_lossy(&verify.password).into_owned();
            let is_right =
                verify.stored.is_some_and(|stored| broker::password::verify(&stored, &password));
            self.step(number, Input::Verified(is_right));
        }
        if closes {
            self.result
                .push(format!("closed{}", if mark.is_empty() { mark } else { format!(" {mark}") }));
        }
    }

    /// Hands out answers and replies until there are none.
    fn pump(&mut self) {
        while !self.cluster.answers.is_empty() || !self.replies.is_empty() {
            let answers = std::mem::take(&mut self.cluster.answers);
            for (session, answer) in answers {
                let number = session.0 as usize;
                if !self.connections.contains_key(&number) {
                    continue;
                }
                let is_held = matches!(
                    answer,
                    Answer::Appended { .. } | Answer::Delivered(_) | Answer::Admitted { .. }
                );
                if self.is_by_hand && is_held {
                    self.held.push((number, answer));
                } else {
                    self.step(number, Input::Answered(&mut vec![answer]));
                }
            }
            for reply in std::mem::take(&mut self.replies) {
                if let Some(&number) = self.addresses.0.get(&reply.address) {
                    self.step(number, Input::Replied(&mut vec![reply]));
                }
            }
            for connection in self.connections.values_mut() {
                assert!(!connection.out.close || connection.is_closed);
            }
        }
        let waiting: Vec<usize> = self
            .connections
            .iter()
            .filter(|(_, connection)| connection.session.wants_written(0))
            .map(|(number, _)| *number)
            .collect();
        for number in waiting {
            let connection = self.connections.get_mut(&number).unwrap();
            let view = View {
                catalog: &self.cluster.catalog,
                alarms: self.cluster.alarms,
                in_flight_bytes: 0,
                outbound_bytes: 0,
                consumers: 0,
                replies: &self.addresses,
                quotas: &self.population,
            };
            connection.session.step(self.now, &view, Input::Written, &mut connection.out);
            assert!(!connection.session.wants_written(0), "credit is given once all is written");
            self.collect(number);
        }
        if !self.cluster.answers.is_empty() {
            self.pump();
        }
    }

    /// `< appended ticket=1`, `< failed ticket=1`, `< admitted ticket=1`, `< deliveries`: lets the cluster say it.
    fn release(&mut self, words: &[String]) {
        let values = wire::pairs(&words[1..]);
        let ticket = values.get("ticket").map(|ticket| ticket.parse::<u64>().unwrap());
        let (now, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.held).into_iter().partition(|(_, answer)| match answer {
                Answer::Appended { ticket: found } | Answer::Admitted { ticket: found, .. } => {
                    Some(found.0) == ticket
                }
                _ => words[0] == "deliveries",
            });
        self.held = later;
        if now.is_empty() {
            self.result.push("!  there is nothing to release".to_owned());
        }
        for (number, answer) in now {
            let answer = match answer {
                Answer::Appended { ticket } if words[0] == "failed" => {
                    Answer::AppendFailed { ticket }
                }
                other => other,
            };
            self.step(number, Input::Answered(&mut vec![answer]));
        }
    }
}

/// A request in a few words; those that only ask are left out.
fn shown(request: &Request) -> Option<String> {
    Some(match request {
        Request::Append { group, ticket, batch, settles } => {
            let settles = if settles.is_empty() { "" } else { " with-settles" };
            let commands = batch.commands();
            format!("append group={} ticket={} commands={commands}{settles}", group.0, ticket.0)
        }
        Request::Credit { add, .. } => format!("credit add={add}"),
        Request::ChangeConsumer { change: ConsumerChange::Pause(is_paused), .. } => {
            format!("pause-consumer {is_paused}")
        }
        Request::ChangeConsumer { change: ConsumerChange::Weigh(weight), .. } => {
            format!("weigh-consumer {weight:?}").to_lowercase()
        }
        Request::Settle { ranges, outcome, credit, .. } => {
            let ranges: Vec<String> =
                ranges.ranges().map(|range| format!("{}..{}", range.start, range.end)).collect();
            format!("settle {outcome:?} seqs={} credit={credit}", ranges.join(",")).to_lowercase()
        }
        Request::Attach { spec, .. } => format!("attach credit={}", spec.credit),
        Request::Detach { .. } => "detach".to_owned(),
        Request::Get { .. } => "get".to_owned(),
        Request::Admit { sizes, .. } => format!("admit sizes={sizes:?}"),
        Request::EndSession { .. } => "end-session".to_owned(),
        Request::Catalog { .. }
        | Request::Purge { .. }
        | Request::Withhold { .. }
        | Request::Status { .. }
        | Request::Describe { .. }
        | Request::Peek { .. }
        | Request::Lock { .. }
        | Request::CloseQueue { .. } => return None,
    })
}
