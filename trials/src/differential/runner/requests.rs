//! One operation as methods on the wire.

use std::io;

use amqp::{
    FieldTable, FieldValue, Method, Properties, TableRef, basic, confirm, exchange, queue, tx,
};

use super::super::program::{Operation, Verb};
use super::{Runner, link_of, names};

impl Runner<'_> {
    /// Sends what `operation` says and waits for the answer, if there is to be one.
    pub(super) fn request(&mut self, operation: &Operation) -> io::Result<()> {
        match operation.verb {
            Verb::Publish => return self.publish(operation),
            Verb::Ack | Verb::Nack | Verb::Reject => return self.settle_deliveries(operation),
            _ => {}
        }
        let arguments = self.table(operation);
        let arguments = arguments.to_bytes();
        let arguments = TableRef::validate(&arguments).map_err(io::Error::other)?;
        let words: Vec<String> = operation.words.iter().map(|word| self.own(word)).collect();
        let word = |index: usize| words.get(index).map_or("", String::as_str);
        let has = |name: &str| operation.has(name);
        let no_wait = false;
        let method = match operation.verb {
            Verb::Exchange => Method::ExchangeDeclare(exchange::Declare {
                exchange: word(0),
                kind: word(1),
                passive: has("passive"),
                durable: has("durable"),
                auto_delete: has("auto-delete"),
                internal: has("internal"),
                no_wait,
                arguments,
            }),
            Verb::DeleteExchange => Method::ExchangeDelete(exchange::Delete {
                exchange: word(0),
                if_unused: has("if-unused"),
                no_wait,
            }),
            Verb::BindExchange => Method::ExchangeBind(exchange::Bind {
                destination: word(0),
                source: word(1),
                routing_key: word(2),
                no_wait,
                arguments,
            }),
            Verb::UnbindExchange => Method::ExchangeUnbind(exchange::Unbind {
                destination: word(0),
                source: word(1),
                routing_key: word(2),
                no_wait,
                arguments,
            }),
            Verb::Queue => Method::QueueDeclare(queue::Declare {
                queue: word(0),
                passive: has("passive"),
                durable: has("durable"),
                exclusive: has("exclusive"),
                auto_delete: has("auto-delete"),
                no_wait,
                arguments,
            }),
            Verb::DeleteQueue => Method::QueueDelete(queue::Delete {
                queue: word(0),
                if_unused: has("if-unused"),
                if_empty: has("if-empty"),
                no_wait,
            }),
            Verb::Purge => Method::QueuePurge(queue::Purge { queue: word(0), no_wait }),
            Verb::Bind => Method::QueueBind(queue::Bind {
                queue: word(0),
                exchange: word(1),
                routing_key: word(2),
                no_wait,
                arguments,
            }),
            Verb::Unbind => Method::QueueUnbind(queue::Unbind {
                queue: word(0),
                exchange: word(1),
                routing_key: word(2),
                arguments,
            }),
            Verb::Confirm => Method::ConfirmSelect(confirm::Select { no_wait }),
            Verb::Qos => Method::BasicQos(basic::Qos {
                prefetch_size: 0,
                prefetch_count: word(0).parse().unwrap_or(0),
                global: has("global"),
            }),
            Verb::Consume => Method::BasicConsume(basic::Consume {
                queue: word(1),
                consumer_tag: word(0),
                no_local: false,
                no_ack: has("no-ack"),
                exclusive: has("exclusive"),
                no_wait,
                arguments,
            }),
            Verb::Cancel => Method::BasicCancel(basic::Cancel { consumer_tag: word(0), no_wait }),
            Verb::Get => Method::BasicGet(basic::Get { queue: word(0), no_ack: has("no-ack") }),
            Verb::Recover => Method::BasicRecover(basic::Recover { requeue: !has("no-requeue") }),
            Verb::Tx => Method::TxSelect(tx::Select),
            Verb::Commit => Method::TxCommit(tx::Commit),
            Verb::Rollback => Method::TxRollback(tx::Rollback),
            Verb::Publish | Verb::Ack | Verb::Nack | Verb::Reject => unreachable!("done above"),
            Verb::Close | Verb::Disconnect | Verb::Pause => unreachable!("no requests"),
            Verb::Policy | Verb::DeletePolicy | Verb::Grant | Verb::Topics | Verb::ClearTopics => {
                unreachable!("over HTTP")
            }
        };
        let (channel, link) = (operation.channel, link_of(operation.channel));
        self.wire(link)?.send(channel, &method);
        let replies = self.step.replies.len() + self.step.gots.len();
        self.await_reply(link, channel, true)?;
        let is_done = self.step.replies.len() + self.step.gots.len() > replies;
        if is_done {
            self.did(operation, &words);
        }
        Ok(())
    }

    /// What a successful answer changes here.
    fn did(&mut self, operation: &Operation, words: &[String]) {
        if operation.verb == Verb::Consume {
            self.consuming.push((operation.channel, words[0].clone()));
        }
        match operation.verb {
            Verb::Queue if !operation.has("passive") => {
                let is_own = operation.has("exclusive");
                let link = if is_own { link_of(operation.channel) } else { 0 };
                self.watch(words[0].clone(), link);
            }
            Verb::Confirm => {
                if let Some(channel) = self.channels.get_mut(&operation.channel) {
                    channel.confirms.get_or_insert(1);
                }
            }
            Verb::Get if operation.has("no-ack") => {
                if let Some(channel) = self.channels.get_mut(&operation.channel) {
                    channel.held.retain(|held| held.source != "got" || held.step != self.steps);
                }
            }
            Verb::Consume if operation.has("no-ack") => {
                if let Some(channel) = self.channels.get_mut(&operation.channel) {
                    channel.unheld.insert(words[0].clone());
                    channel.held.retain(|held| held.source != words[0]);
                }
            }
            Verb::Consume => {
                if let Some(channel) = self.channels.get_mut(&operation.channel) {
                    channel.unheld.remove(&words[0]);
                }
            }
            Verb::Recover => {
                // What comes again has come already, with a new tag.
                let step = self.steps;
                if let Some(channel) = self.channels.get_mut(&operation.channel) {
                    channel.held.retain(|held| held.step == step);
                }
            }
            _ => {}
        }
    }

    fn publish(&mut self, operation: &Operation) -> io::Result<()> {
        let headers = self.headers(operation);
        let raw_headers = headers.to_bytes();
        let headers = if headers.is_empty() {
            None
        } else {
            Some(TableRef::validate(&raw_headers).map_err(io::Error::other)?)
        };
        let texts = ["content-type", "correlation-id", "reply-to", "expiration", "message-id"];
        let texts = texts.map(|name| operation.text(name));
        let (kind, user_id) = (operation.text("type"), operation.text("user-id"));
        let octet = |name: &str| operation.number(name).and_then(|n| u8::try_from(n).ok());
        let properties = Properties {
            content_type: texts[0].as_deref(),
            correlation_id: texts[1].as_deref(),
            reply_to: texts[2].as_deref(),
            expiration: texts[3].as_deref(),
            message_id: texts[4].as_deref(),
            kind: kind.as_deref(),
            user_id: user_id.as_deref(),
            headers,
            delivery_mode: operation.has("persistent").then_some(2),
            priority: octet("priority"),
            ..Properties::default()
        };
        let (exchange, key) = (self.own(operation.word(0)), self.own(operation.word(1)));
        let bytes = operation.number("bytes").and_then(|bytes| usize::try_from(bytes).ok());
        for _ in 0..operation.number("n").unwrap_or(1) {
            self.published += 1;
            let name = format!("m{}", self.published);
            let body = format!("{name:.<width$}", width = bytes.unwrap_or(0));
            if let Some(channel) = self.channels.get_mut(&operation.channel)
                && let Some(next) = &mut channel.confirms
            {
                channel.unconfirmed.insert(*next, name);
                *next += 1;
            }
            let method = Method::BasicPublish(basic::Publish {
                exchange: &exchange,
                routing_key: &key,
                mandatory: operation.has("mandatory"),
                immediate: operation.has("immediate"),
            });
            let wire = self.wire(link_of(operation.channel))?;
            wire.send(operation.channel, &method);
            wire.send_content(operation.channel, &properties, body.as_bytes());
        }
        Ok(())
    }

    /// ack, nack and reject: all without an answer.
    fn settle_deliveries(&mut self, operation: &Operation) -> io::Result<()> {
        let Some(channel) = self.channels.get_mut(&operation.channel) else { return Ok(()) };
        let which = operation.word(0);
        let multiple = which == "all" || operation.has("multiple");
        let Some(tag) = channel.tag(which, multiple) else {
            self.step.replies.push("there is nothing to settle".to_owned());
            return Ok(());
        };
        if multiple {
            channel.held.retain(|held| tag != 0 && held.tag > tag);
        } else {
            channel.held.retain(|held| held.tag != tag);
        }
        channel.settled = Some(tag).filter(|tag| *tag != 0).or(channel.settled);
        let requeue = operation.has("requeue");
        let method = match operation.verb {
            Verb::Nack => Method::BasicNack(basic::Nack { delivery_tag: tag, multiple, requeue }),
            Verb::Reject => Method::BasicReject(basic::Reject { delivery_tag: tag, requeue }),
            _ => Method::BasicAck(basic::Ack { delivery_tag: tag, multiple }),
        };
        self.wire(link_of(operation.channel))?.send(operation.channel, &method);
        Ok(())
    }

    /// Arguments, with the names in them that are the program's own.
    fn table(&self, operation: &Operation) -> FieldTable {
        operation.arguments().map(|(name, value)| (name, self.own_value(value))).collect()
    }

    fn headers(&self, operation: &Operation) -> FieldTable {
        let mut headers = self.table(operation);
        for name in ["CC", "BCC"] {
            if let Some(value) = operation.option(name) {
                headers.insert(name, self.own_value(value));
            }
        }
        headers
    }

    fn own_value(&self, value: &FieldValue) -> FieldValue {
        names::own_value(self.prefix, value)
    }
}

impl super::Channel {
    /// The delivery tag that a word means: 0 for all. With `multiple` it is the last of those that
    /// came with it, because the order in which several queues delivered is open.
    fn tag(&self, which: &str, multiple: bool) -> Option<u64> {
        let held = match which {
            "all" => return Some(0),
            "again" => return self.settled,
            number if number.parse::<u64>().is_ok() => return number.parse().ok(),
            _ => {
                let (source, place) = which.split_once('.')?;
                let mut held = self.held.iter().filter(|held| held.source == source);
                if place == "last" { held.next_back()? } else { held.next()? }
            }
        };
        let together = self.held.iter().filter(|other| multiple && other.step == held.step);
        Some(together.map(|other| other.tag).fold(held.tag, u64::max))
    }
}
