//! Reads a push out of a job: where it goes, its headers, and its payload, all checked before anything is sent.
//!
//! A job's body is either a document, `{"token": "…", "payload": {…}}` with the optional fields of [`Document`],
//! or, when the job has the header `x-push-token`, the payload as it is; then `x-push-topic`, `x-push-type`,
//! `x-push-priority`, `x-push-expiration` and `x-push-collapse-id` say what the document's fields say.

use std::borrow::Cow;

use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::uri::PathAndQuery;
use serde::Deserialize;
use serde_json::value::RawValue;
use sha1::{Digest, Sha1};

use crate::job::Message;

/// Largest payload, in bytes.
pub const PAYLOAD_BYTES_MAX: usize = 4096;
/// Largest payload of push type `voip`, in bytes.
pub const VOIP_PAYLOAD_BYTES_MAX: usize = 5120;
/// Longest collapse id, in bytes.
const COLLAPSE_ID_BYTES_MAX: usize = 64;
/// Longest device token, in hexadecimal digits. Apple warns that their length may grow.
const TOKEN_DIGITS_MAX: usize = 400;

/// Before the device token in a path.
const DEVICE: &str = "/3/device/";

const APNS_TOPIC: HeaderName = HeaderName::from_static("apns-topic");
const APNS_PUSH_TYPE: HeaderName = HeaderName::from_static("apns-push-type");
const APNS_PRIORITY: HeaderName = HeaderName::from_static("apns-priority");
const APNS_EXPIRATION: HeaderName = HeaderName::from_static("apns-expiration");
const APNS_COLLAPSE_ID: HeaderName = HeaderName::from_static("apns-collapse-id");
const APNS_ID: HeaderName = HeaderName::from_static("apns-id");

/// What jobs that do not say it have.
#[derive(Clone, Debug)]
pub struct Defaults {
    pub topic: Option<HeaderValue>,
    pub push_type: HeaderValue,
}

impl Defaults {
    /// From the settings' words.
    ///
    /// # Errors
    /// One cannot stand in a header.
    pub fn new(topic: Option<&str>, push_type: &str) -> Result<Self, String> {
        let topic = topic.map(|topic| value("topic", topic)).transpose()?;
        Ok(Self { topic, push_type: value("push_type", push_type)? })
    }
}

/// A push, ready to be sent.
pub struct Push {
    pub path: PathAndQuery,
    /// All but `authorization`. A request takes them.
    pub headers: HeaderMap,
    pub payload: Bytes,
    /// The device token's hash, to remember what it was answered with.
    pub token_hash: u64,
    /// When the device token was registered, in milliseconds since 1970, if the job says so.
    pub registered_ms: Option<u64>,
}

impl Push {
    /// The device token. Never shown.
    pub fn token(&self) -> &str {
        &self.path.path()[DEVICE.len()..]
    }
}

/// A job's body.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document<'a> {
    #[serde(borrow)]
    token: Option<Cow<'a, str>>,
    #[serde(borrow)]
    topic: Option<Cow<'a, str>>,
    #[serde(borrow)]
    push_type: Option<Cow<'a, str>>,
    priority: Option<u8>,
    /// Seconds since 1970; 0: try once.
    expiration: Option<u64>,
    #[serde(borrow)]
    collapse_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    payload: &'a RawValue,
}

/// What a job asks for, wherever it said it.
struct Asked<'a> {
    token: Cow<'a, str>,
    topic: Option<Cow<'a, str>>,
    push_type: Option<Cow<'a, str>>,
    priority: Option<u8>,
    expiration: Option<u64>,
    collapse_id: Option<Cow<'a, str>>,
    payload: Bytes,
}

/// The push that a job asks for.
///
/// # Errors
/// No push can be made of it, in words for its publisher. They do not hold the device token.
pub fn read(job: &Message, defaults: &Defaults) -> Result<Push, String> {
    let asked = match header(job, "x-push-token") {
        Some(token) => asked_in_headers(job, token)?,
        None => asked_in_document(job)?,
    };
    let push_type = match asked.push_type.as_deref() {
        Some(name) => push_type(name)?,
        None => defaults.push_type.clone(),
    };
    check_payload(&asked.payload, push_type.as_bytes() == b"voip")?;
    let mut headers = HeaderMap::with_capacity(12);
    if let Some(topic) = asked.topic.as_deref() {
        headers.insert(APNS_TOPIC, value("topic", topic)?);
    } else if let Some(topic) = &defaults.topic {
        headers.insert(APNS_TOPIC, topic.clone());
    }
    headers.insert(APNS_PUSH_TYPE, push_type);
    if let Some(priority) = asked.priority {
        headers.insert(APNS_PRIORITY, priority_value(priority)?);
    }
    if let Some(expiration) = asked.expiration {
        headers.insert(APNS_EXPIRATION, unindexed(expiration.into()));
    }
    if let Some(id) = asked.collapse_id.as_deref().filter(|id| !id.is_empty()) {
        if id.len() > COLLAPSE_ID_BYTES_MAX {
            return Err(format!("the collapse id has {} bytes; APNs takes 64", id.len()));
        }
        headers.insert(APNS_COLLAPSE_ID, unindexed(value("collapse_id", id)?));
    }
    let id = HeaderValue::from_maybe_shared(Bytes::from(apns_id(&job.id)))
        .expect("a UUID can stand in a header");
    headers.insert(APNS_ID, unindexed(id));
    Ok(Push {
        path: path(&asked.token)?,
        headers,
        payload: asked.payload,
        token_hash: token_hash(&asked.token),
        registered_ms: header(job, "x-push-registered-ms").and_then(|text| text.parse().ok()),
    })
}

fn asked_in_document(job: &Message) -> Result<Asked<'_>, String> {
    // The error's text would show a part of the body: only its place is told.
    let document: Document<'_> = serde_json::from_slice(&job.body).map_err(|error| {
        format!(
            "the body is no push ({}): it needs {{\"token\": …, \"payload\": {{…}}}}",
            place(&error)
        )
    })?;
    let payload = job.body.slice_ref(document.payload.get().as_bytes());
    Ok(Asked {
        token: document.token.ok_or("the push has no token")?,
        topic: document.topic,
        push_type: document.push_type,
        priority: document.priority,
        expiration: document.expiration,
        collapse_id: document.collapse_id,
        payload,
    })
}

fn place(error: &serde_json::Error) -> String {
    let what = if error.is_data() { "a field is wrong" } else { "it is not JSON" };
    format!("{what}, line {} column {}", error.line(), error.column())
}

fn asked_in_headers<'a>(job: &'a Message, token: &'a str) -> Result<Asked<'a>, String> {
    let number = |name: &str| -> Result<Option<u64>, String> {
        let Some(text) = header(job, name) else { return Ok(None) };
        text.parse().map(Some).map_err(|_| format!("the header {name} is no number"))
    };
    let priority = match number("x-push-priority")? {
        Some(number) => Some(u8::try_from(number).map_err(|_| wrong_priority(number))?),
        None => None,
    };
    Ok(Asked {
        token: Cow::Borrowed(token),
        topic: header(job, "x-push-topic").map(Cow::Borrowed),
        push_type: header(job, "x-push-type").map(Cow::Borrowed),
        priority,
        expiration: number("x-push-expiration")?,
        collapse_id: header(job, "x-push-collapse-id").map(Cow::Borrowed),
        payload: job.body.clone(),
    })
}

fn header<'a>(job: &'a Message, name: &str) -> Option<&'a str> {
    let found = job.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name));
    found.map(|header| header.value.as_str())
}

fn check_payload(payload: &[u8], is_voip: bool) -> Result<(), String> {
    let most = if is_voip { VOIP_PAYLOAD_BYTES_MAX } else { PAYLOAD_BYTES_MAX };
    if payload.len() > most {
        return Err(format!("the payload has {} bytes; APNs takes {most}", payload.len()));
    }
    if payload.first() != Some(&b'{') {
        return Err("the payload is no JSON object".to_owned());
    }
    Ok(())
}

/// The usual types need no allocation.
fn push_type(name: &str) -> Result<HeaderValue, String> {
    const USUAL: [&str; 4] = ["alert", "background", "voip", "liveactivity"];
    match USUAL.iter().find(|usual| **usual == name) {
        Some(usual) => Ok(HeaderValue::from_static(usual)),
        None => value("push_type", name),
    }
}

fn priority_value(priority: u8) -> Result<HeaderValue, String> {
    match priority {
        10 => Ok(HeaderValue::from_static("10")),
        5 => Ok(HeaderValue::from_static("5")),
        1 => Ok(HeaderValue::from_static("1")),
        other => Err(wrong_priority(u64::from(other))),
    }
}

fn wrong_priority(priority: u64) -> String {
    format!("the priority {priority} is none of APNs's: 10, 5 and 1")
}

fn value(name: &str, text: &str) -> Result<HeaderValue, String> {
    HeaderValue::from_str(text).map_err(|_| format!("the {name} cannot stand in a header"))
}

/// What differs from push to push would only push the others out of the connection's header table.
fn unindexed(mut value: HeaderValue) -> HeaderValue {
    value.set_sensitive(true);
    value
}

fn path(token: &str) -> Result<PathAndQuery, String> {
    let is_hex = token.bytes().all(|byte| byte.is_ascii_hexdigit());
    if token.is_empty() || token.len() > TOKEN_DIGITS_MAX || !is_hex {
        return Err("the device token is not hexadecimal".to_owned());
    }
    let mut text = String::with_capacity(DEVICE.len() + token.len());
    text.push_str(DEVICE);
    text.push_str(token);
    PathAndQuery::from_maybe_shared(Bytes::from(text)).map_err(|error| error.to_string())
}

/// The id of the push at APNs: the job's, if that is a UUID, or one derived from it (RFC 9562, version 5). The same
/// at every attempt.
pub fn apns_id(job_id: &str) -> String {
    /// Names the ids of jobs; chosen once.
    const NAMESPACE: [u8; 16] = *b"millrace.apns-id";
    if is_uuid(job_id) {
        return job_id.to_ascii_lowercase();
    }
    let digest = Sha1::new().chain_update(NAMESPACE).chain_update(job_id).finalize();
    let mut bytes: [u8; 16] = digest[..16].try_into().expect("a SHA-1 digest has 20 bytes");
    bytes[6] = bytes[6] & 0x0f | 0x50;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let mut text = String::with_capacity(36);
    for (index, byte) in bytes.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        for digit in [byte >> 4, byte & 15] {
            text.push(char::from(b"0123456789abcdef"[usize::from(digit)]));
        }
    }
    text
}

fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(index, byte)| match index {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

/// A hash of a device token (FNV-1a with a finish that spreads), the same for upper and lower case.
fn token_hash(token: &str) -> u64 {
    let hash = token.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte.to_ascii_lowercase())).wrapping_mul(0x100_0000_01b3)
    });
    let mixed = (hash ^ hash >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ mixed >> 29
}

#[cfg(test)]
mod tests;
