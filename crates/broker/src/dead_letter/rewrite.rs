//! What becomes of a message that died: the dead letter, exactly as RabbitMQ 3.10 makes it.
//!
//! A pure function from what is stored of a message to what is to be stored of it next. A letter gets no
//! more headers than fit into a frame of the usual size, or nobody could send it on. Where the record of its
//! deaths does not fit, the oldest are left out first, then keys, then who was the first; where not even
//! the newest fits, the headers stay as they are.

use amqp::{FieldWriter, Properties, TableRef, ValueRef};
use bytes::{BufMut as _, BytesMut};

use super::death::Death;
use super::limits::LETTER_HEADERS_BYTES_MAX;
use super::x_death::{Deaths, Told, Trail, X_DEATH};
use crate::stored::{destination_texts, put_destination, short, split_head};

const CC: &str = "CC";
const BCC: &str = "BCC";
const FIRST_REASON: &str = "x-first-death-reason";
const FIRST_QUEUE: &str = "x-first-death-queue";
const FIRST_EXCHANGE: &str = "x-first-death-exchange";

/// How often operators have sent a message on from a queue with dead letters.
pub(super) const RETRIES: &str = "x-millrace-retries";

/// Whether a header of this name is the broker's record of what became of a message.
pub(super) fn is_record(name: &str) -> bool {
    [X_DEATH, FIRST_REASON, FIRST_QUEUE, FIRST_EXCHANGE, RETRIES].contains(&name)
}

/// What routing has to know of a dead letter.
#[derive(Debug, Default)]
pub(crate) struct Letter<'m> {
    /// It is routed by all of them; delivered with the first.
    pub(crate) keys: Vec<&'m str>,
    /// As they were, the headers included.
    pub(crate) properties: Properties<'m>,
    /// Where it has been.
    pub(crate) trail: Trail<'m>,
}

/// Makes a message that was stored with this `head` a dead letter: its new head goes into `out`.
pub(crate) fn write_letter<'m>(
    head: &'m [u8],
    death: &Death<'m>,
    out: &mut BytesMut,
) -> Letter<'m> {
    let (destination, raw) = split_head(head).unwrap_or_default();
    let (exchange, key) = destination_texts(destination);
    let new_key = short(death.key.unwrap_or(key));
    put_destination(death.exchange, new_key, out);
    let Ok(properties) = Properties::decode(raw) else {
        // Nothing that a session has stored; it goes on as it is.
        out.put_slice(raw);
        return Letter { keys: vec![new_key], ..Letter::default() };
    };
    let headers = properties.headers.unwrap_or_default();
    let mut keys = vec![key];
    for name in [CC, BCC] {
        add_keys(headers, name, &mut keys);
    }
    let mut deaths = Deaths::read(headers, death);
    let mut told = Told { exchange, keys: &keys, expiration: properties.expiration };
    let mut written = BytesMut::with_capacity(headers.as_bytes().len() + 256);
    let amended = write_fitting(headers, death, &mut deaths, &mut told, &mut written);
    let headers = amended.or(properties.headers);
    Properties { headers, expiration: None, ..properties }.encode(out);
    if death.key.is_some() {
        keys = vec![new_key];
    }
    Letter { keys, properties, trail: deaths.into_trail() }
}

/// The routing keys in a header that lists some.
fn add_keys<'m>(headers: TableRef<'m>, name: &str, keys: &mut Vec<&'m str>) {
    let Some(ValueRef::Array(array)) = headers.find(name) else { return };
    keys.extend(array.iter().filter_map(|key| match key {
        ValueRef::LongStr(key) => std::str::from_utf8(key).ok(),
        _ => None,
    }));
}

/// One header of a letter.
#[derive(Clone, Copy, Debug)]
enum Header<'m> {
    /// As it lies in the message.
    Kept(&'m [u8]),
    Text(&'m str),
    Number(i64),
    Deaths,
}

/// Writes as much as may be written. None: the headers stay.
fn write_fitting<'o>(
    headers: TableRef<'_>,
    death: &Death<'_>,
    deaths: &mut Deaths<'_>,
    told: &mut Told<'_>,
    written: &'o mut BytesMut,
) -> Option<TableRef<'o>> {
    let mut tells_first = deaths.is_first;
    loop {
        written.clear();
        write_headers(headers, death, deaths, told, tells_first, true, written);
        if written.len() <= LETTER_HEADERS_BYTES_MAX && TableRef::validate(written).is_ok() {
            break;
        }
        if deaths.others() > 0 {
            deaths.keep(deaths.others() / 2);
        } else if told.keys.len() > 1 {
            told.keys = &told.keys[..1];
        } else if tells_first {
            tells_first = false;
        } else {
            deaths.forget();
            written.clear();
            write_headers(headers, death, deaths, told, false, false, written);
            break;
        }
    }
    TableRef::validate(written).ok()
}

/// Writes the headers, sorted by name as RabbitMQ does at every death.
fn write_headers(
    headers: TableRef<'_>,
    death: &Death<'_>,
    deaths: &Deaths<'_>,
    told: &Told<'_>,
    tells_first: bool,
    tells_deaths: bool,
    out: &mut BytesMut,
) {
    let kept = headers.raw_fields().map(|(name, field)| (name, Header::Kept(field)));
    let mut all: Vec<(&str, Header<'_>)> = kept.collect();
    if tells_first {
        set(&mut all, FIRST_REASON, Header::Text(death.reason_name()));
        set(&mut all, FIRST_QUEUE, Header::Text(death.queue));
        set(&mut all, FIRST_EXCHANGE, Header::Text(told.exchange));
    }
    if let Some(retries) = death.retries {
        set(&mut all, RETRIES, Header::Number(retries));
    }
    if tells_deaths {
        set(&mut all, X_DEATH, Header::Deaths);
    }
    if death.key.is_some()
        && let Some(place) = all.iter().position(|(name, _)| *name == CC)
    {
        all.remove(place);
    }
    all.sort_by_key(|(name, _)| *name);
    let mut fields = FieldWriter::new(out);
    for (name, header) in &all {
        match header {
            Header::Kept(field) => fields.raw(field),
            Header::Text(text) => fields.text(name, text.as_bytes()),
            Header::Number(number) => fields.long(name, *number),
            Header::Deaths => {
                fields.array(name, |elements| deaths.write(elements, death, told));
            }
        }
    }
}

/// In the place of the first of this name, or behind all.
fn set<'m>(all: &mut Vec<(&'m str, Header<'m>)>, name: &'static str, header: Header<'m>) {
    match all.iter_mut().find(|(known, _)| *known == name) {
        Some((_, known)) => *known = header,
        None => all.push((name, header)),
    }
}
