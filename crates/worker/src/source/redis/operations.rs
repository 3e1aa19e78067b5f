//! Settlements and jobs as the arguments of scripts.

use bytes::Bytes;

use super::fields::{self, Field};
use crate::settlement::{Publish, Settlement};
use crate::source::envelope::{self, Envelope};
use crate::source::ledger::Work;

/// The operations of one batch, as arguments.
#[derive(Debug, Default)]
pub struct Operations {
    pub args: Vec<Bytes>,
    /// How many operations.
    pub count: usize,
    /// Those that are done and have nothing to publish go together, before all others.
    plain: Vec<Bytes>,
    plain_places: Vec<usize>,
    places: Vec<usize>,
}

impl Operations {
    /// A job that is done, with nothing to follow.
    fn plain(&mut self, place: usize, name: Bytes) {
        self.plain.push(name);
        self.plain_places.push(place);
    }

    fn operation(
        &mut self,
        place: usize,
        kind: &'static str,
        name: Bytes,
        after: u64,
        nonce: &str,
    ) {
        self.count += 1;
        self.places.push(place);
        self.args.push(Bytes::from_static(kind.as_bytes()));
        self.args.push(name);
        self.args.push(text(after));
        self.args.push(Bytes::copy_from_slice(nonce.as_bytes()));
    }

    fn values(&mut self, values: Vec<Bytes>) {
        self.args.push(text(values.len()));
        self.args.extend(values);
    }

    fn publishes(
        &mut self,
        publishes: &[Publish],
        nonce: &str,
        encode: fn(&Envelope) -> Vec<Bytes>,
    ) {
        self.args.push(text(publishes.len()));
        for (index, publish) in publishes.iter().enumerate() {
            let envelope = Envelope {
                message: publish.message.clone(),
                key: publish.key.clone(),
                ..Envelope::default()
            };
            self.args.push(Bytes::copy_from_slice(publish.routing_key.as_bytes()));
            self.args.push(text(publish.delay.map_or(0, |delay| delay.as_millis())));
            self.args.push(Bytes::from(format!("{nonce}-{index}")));
            self.values(encode(&envelope));
        }
    }

    /// All arguments, the count before them; and the places that the letters of the answer belong to.
    pub fn finish(self) -> (Vec<Bytes>, Vec<usize>) {
        let has_plain = !self.plain.is_empty();
        let mut args = vec![text(self.count + usize::from(has_plain))];
        if has_plain {
            args.push(Bytes::from_static(b"D"));
            args.push(text(self.plain.len()));
            args.extend(self.plain);
        }
        args.extend(self.args);
        let mut places = self.plain_places;
        places.extend(self.places);
        (args, places)
    }
}

fn text(number: impl ToString) -> Bytes {
    Bytes::from(number.to_string())
}

/// A job in hand of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The entry's id.
    pub id: String,
    /// The job's id, which its copies keep.
    pub job_id: String,
    pub published_ms: Option<u64>,
}

/// Adds the settlement of a stream's job, at its place in the batch. `nonce` makes delayed copies unique.
pub fn add_stream(to: &mut Operations, place: usize, work: &Work<Entry>, nonce: &str) {
    let entry = &work.handle;
    let id = Bytes::copy_from_slice(entry.id.as_bytes());
    let mut changes = vec![("id", Bytes::copy_from_slice(entry.job_id.as_bytes()))];
    if let Some(ms) = entry.published_ms {
        changes.push(("published_ms", text(ms)));
    }
    let mut after_ms = 0;
    let kind = match &work.settlement {
        Settlement::Done if work.publishes.is_empty() => return to.plain(place, id),
        Settlement::Done => "d",
        Settlement::Return => "r",
        Settlement::Later { after, attempt, why: _, rest } => {
            after_ms = after.as_millis() as u64;
            changes.push(("attempt", text(attempt)));
            if let Some(rest) = rest {
                changes.push(("body", rest.clone()));
            }
            "l"
        }
        Settlement::Dead { cause, why } => {
            let [cause, why] = fields::death(*cause, why);
            changes.push(("dead_cause", cause.1));
            changes.push(("dead_why", why.1));
            "x"
        }
    };
    to.operation(place, kind, id, after_ms, nonce);
    let flat = |(name, value): (&'static str, Bytes)| [Bytes::from_static(name.as_bytes()), value];
    to.values(changes.into_iter().flat_map(flat).collect());
    to.publishes(&work.publishes, nonce, stream_values);
}

/// A job as a stream's entry.
pub fn stream_values(envelope: &Envelope) -> Vec<Bytes> {
    flat(fields::write(envelope))
}

/// A job as a list's element.
pub fn list_values(envelope: &Envelope) -> Vec<Bytes> {
    vec![Bytes::from(envelope::write(envelope))]
}

/// Names and values, one after the other.
pub fn flat(fields: Vec<Field>) -> Vec<Bytes> {
    fields.into_iter().flat_map(|(name, value)| [name, value]).collect()
}

/// A job in hand of a list.
#[derive(Clone, Debug)]
pub struct Element {
    /// The element, as it lies in the list.
    pub element: Bytes,
    pub envelope: std::sync::Arc<Envelope>,
}

/// Adds the settlement of a list's job.
pub fn add_list(to: &mut Operations, place: usize, work: &Work<Element>, nonce: &str) {
    let Element { element, envelope } = &work.handle;
    let mut values = Vec::new();
    let mut after_ms = 0;
    let kind = match &work.settlement {
        Settlement::Done if work.publishes.is_empty() => return to.plain(place, element.clone()),
        Settlement::Done => "d",
        Settlement::Return => "r",
        Settlement::Later { after, attempt, why: _, rest } => {
            after_ms = after.as_millis() as u64;
            let mut copy = Envelope::clone(envelope);
            copy.message.attempt = *attempt;
            if let Some(rest) = rest {
                copy.message.body = rest.clone();
            }
            values = list_values(&copy);
            "l"
        }
        Settlement::Dead { cause, why } => {
            let mut fields = fields::write(envelope);
            fields.extend(fields::death(*cause, why));
            values = flat(fields);
            "x"
        }
    };
    to.operation(place, kind, element.clone(), after_ms, nonce);
    to.values(values);
    to.publishes(&work.publishes, nonce, list_values);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::settlement::Settled;
    use crate::source::ledger::{Ledger, Step};

    #[allow(clippy::disallowed_methods, reason = "some moment")]
    fn work(settlement: Settlement, publishes: Vec<Publish>) -> Work<Entry> {
        let mut ledger = Ledger::default();
        let entry = Entry { id: "5-0".into(), job_id: "j".into(), published_ms: Some(5) };
        let receipt = ledger.take(entry, None, 0);
        let settled = Settled { receipt, settlement, publishes };
        match ledger.settle(settled, std::time::Instant::now()) {
            Step::Work(work) => work,
            Step::Waits | Step::Lost => panic!("it is in hand"),
        }
    }

    #[test]
    fn jobs_that_are_done_go_together_and_letters_find_their_places() {
        let mut operations = Operations::default();
        add_stream(&mut operations, 0, &work(Settlement::Return, Vec::new()), "n");
        add_stream(&mut operations, 1, &work(Settlement::Done, Vec::new()), "n");
        let after = Duration::from_secs(2);
        let later = Settlement::Later { after, attempt: 3, why: String::new(), rest: None };
        add_stream(&mut operations, 2, &work(later, Vec::new()), "n");
        add_stream(&mut operations, 3, &work(Settlement::Done, Vec::new()), "n");
        let (args, places) = operations.finish();
        assert_eq!(places, [1, 3, 0, 2]);
        let text: Vec<&str> =
            args.iter().map(|arg| std::str::from_utf8(arg).expect("text")).collect();
        let done = ["3", "D", "2", "5-0", "5-0"];
        let returned = ["r", "5-0", "0", "n", "4", "id", "j", "published_ms", "5", "0"];
        let later =
            ["l", "5-0", "2000", "n", "6", "id", "j", "published_ms", "5", "attempt", "3", "0"];
        assert_eq!(text, [&done[..], &returned[..], &later[..]].concat());
    }
}
