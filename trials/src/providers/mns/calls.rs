//! What is asked, and what is answered.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State as Extracted};
use axum::http::{HeaderMap, Response, StatusCode};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac};
use quick_xml::escape::escape;
use serde::Deserialize;
use sha1::Sha1;

use super::queue::Message;
use super::{Call, Fault, Shared, State, now_ms};

/// Sixteen messages, and their frames.
const REQUEST_BYTES_MAX: usize = 4 << 20;
/// Messages of one call.
const BATCH_MAX: usize = 16;
/// Further than this from the server's clock a call is refused.
const SKEW_MAX: Duration = Duration::from_secs(15 * 60);
/// How often a poll that waits looks again: messages become visible by themselves, too.
const LOOK_EVERY: Duration = Duration::from_millis(20);

#[derive(Deserialize)]
struct Sent {
    #[serde(rename = "MessageBody")]
    body: String,
    #[serde(rename = "DelaySeconds", default)]
    delay_seconds: u64,
    #[serde(rename = "Priority", default)]
    priority: u32,
}

#[derive(Deserialize)]
struct Handles {
    #[serde(rename = "ReceiptHandle", default)]
    handles: Vec<String>,
}

/// An answer: its status, and its body.
struct Answer {
    status: u16,
    body: String,
}

/// A call, as it was read.
struct Asked {
    call: Call,
    queue: String,
    query: BTreeMap<String, String>,
    body: String,
}

/// Answers one call.
pub(super) async fn answer(
    Extracted(shared): Extracted<Arc<Shared>>,
    request: Request,
) -> Response<Body> {
    let answer = match read(&shared, request).await {
        Ok(asked) => carry_out(&shared, asked).await,
        Err(refused) => refused,
    };
    let date = httpdate(now_ms());
    let builder = Response::builder()
        .status(StatusCode::from_u16(answer.status).expect("it is one of ours"))
        .header("content-type", "text/xml;charset=utf-8")
        .header("x-mns-version", "2015-06-06")
        .header("date", date);
    builder.body(Body::from(answer.body)).expect("its headers are text")
}

async fn read(shared: &Shared, request: Request) -> Result<Asked, Answer> {
    let (parts, body) = request.into_parts();
    let resource = parts.uri.path_and_query().map_or("/", |resource| resource.as_str()).to_owned();
    check_signature(shared, parts.method.as_str(), &parts.headers, &resource)?;
    check_date(&parts.headers)?;
    let body = to_bytes(body, REQUEST_BYTES_MAX).await;
    let body = body.map_err(|_| refuse(400, "MalformedXML", "the body is too large"))?;
    let body = String::from_utf8(body.to_vec());
    let body = body.map_err(|_| refuse(400, "MalformedXML", "the body is no text"))?;
    let query = parts.uri.query().unwrap_or_default().split('&').filter_map(|pair| {
        let (name, value) = pair.split_once('=')?;
        Some((name.to_owned(), value.to_owned()))
    });
    let words: Vec<&str> = parts.uri.path().trim_matches('/').split('/').collect();
    let (queue, call) = match (parts.method.as_str(), &words[..]) {
        ("GET", ["queues", queue]) => (*queue, Call::Queue),
        ("GET", ["queues", queue, "messages"]) => (*queue, Call::Receive),
        ("POST", ["queues", queue, "messages"]) => (*queue, Call::Send),
        ("DELETE", ["queues", queue, "messages"]) => (*queue, Call::Delete),
        ("PUT", ["queues", queue, "messages"]) => (*queue, Call::Visibility),
        _ => return Err(refuse(400, "InvalidRequestURL", "there is no such resource")),
    };
    Ok(Asked { call, queue: queue.to_owned(), query: query.collect(), body })
}

fn check_signature(
    shared: &Shared,
    method: &str,
    headers: &HeaderMap,
    resource: &str,
) -> Result<(), Answer> {
    let of =
        |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let given = of("authorization");
    let Some((id, signature)) = given.strip_prefix("MNS ").and_then(|rest| rest.split_once(':'))
    else {
        return Err(refuse(403, "AccessDenied", "there is no signature"));
    };
    if id != shared.options.access_key_id {
        return Err(refuse(403, "InvalidAccessKeyId", "nobody has this access key"));
    }
    let mut mns: Vec<String> = headers
        .iter()
        .filter(|(name, _)| name.as_str().starts_with("x-mns-"))
        .map(|(name, value)| format!("{}:{}\n", name.as_str(), value.to_str().unwrap_or_default()))
        .collect();
    mns.sort();
    let mut text = String::new();
    for line in [method, of("content-md5"), of("content-type"), of("date")] {
        text.push_str(line);
        text.push('\n');
    }
    text.push_str(&mns.concat());
    text.push_str(resource);
    let mut mac = Hmac::<Sha1>::new_from_slice(shared.options.access_key_secret.as_bytes())
        .expect("HMAC takes keys of any length");
    mac.update(text.as_bytes());
    if STANDARD.encode(mac.finalize().into_bytes()) != signature {
        return Err(refuse(403, "SignatureDoesNotMatch", "the signature is another"));
    }
    Ok(())
}

fn check_date(headers: &HeaderMap) -> Result<(), Answer> {
    let date = headers.get("date").and_then(|date| date.to_str().ok()).unwrap_or_default();
    let date = httpdate_ms(date);
    match date {
        Some(ms) if ms.abs_diff(now_ms()) <= SKEW_MAX.as_millis() as u64 => Ok(()),
        Some(_) | None => Err(refuse(408, "TimeExpired", "the date is too far from now")),
    }
}

fn refuse(status: u16, code: &str, message: &str) -> Answer {
    let body = format!(
        "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<Error xmlns=\"http://mns.aliyuncs.com/doc/v1/\">\
         <Code>{code}</Code><Message>{message}</Message><RequestId>51276D3C</RequestId>\
         <HostId>http://127.0.0.1</HostId></Error>"
    );
    Answer { status, body }
}

fn xml(status: u16, body: &str) -> Answer {
    Answer { status, body: format!("<?xml version=\"1.0\" encoding=\"utf-8\"?>\n{body}") }
}

async fn carry_out(shared: &Shared, asked: Asked) -> Answer {
    if let Some(latency) = shared.options.latency.get(&asked.call) {
        tokio::time::sleep(*latency).await;
    }
    let fault = shared.with(|state| {
        *state.counts.entry(asked.call).or_default() += 1;
        state.faults.get_mut(&asked.call).and_then(std::collections::VecDeque::pop_front)
    });
    if is_too_often(shared) {
        return refuse(503, "QpsLimitExceeded", "too many calls");
    }
    match fault {
        Some(Fault::QpsLimitExceeded) => return refuse(503, "QpsLimitExceeded", "too many calls"),
        Some(Fault::InternalError) => return refuse(500, "InternalError", "something broke"),
        Some(Fault::TimeExpired) => {
            return refuse(408, "TimeExpired", "the date is too far from now");
        }
        Some(Fault::AccessDenied) => return refuse(403, "AccessDenied", "you may not"),
        Some(Fault::LostAnswer | Fault::Partly) | None => {}
    }
    if shared.with(|state| !state.queues.contains_key(&asked.queue)) {
        return refuse(404, "QueueNotExist", "The queue name you provided is not exist.");
    }
    let answer = match asked.call {
        Call::Queue => describe(shared, &asked),
        Call::Receive => receive(shared, &asked).await,
        Call::Send => send(shared, &asked),
        Call::Delete => delete(shared, &asked, fault == Some(Fault::Partly)),
        Call::Visibility => show(shared, &asked),
    };
    if fault == Some(Fault::LostAnswer) {
        return Answer { status: 502, body: "<html><h1>502 Bad Gateway</h1></html>".into() };
    }
    answer
}

fn is_too_often(shared: &Shared) -> bool {
    let Some(max) = shared.options.qps_max else { return false };
    let second = now_ms() / 1000;
    shared.with(|state| {
        if state.second.0 != second {
            state.second = (second, 0);
        }
        state.second.1 += 1;
        state.second.1 > max
    })
}

fn describe(shared: &Shared, asked: &Asked) -> Answer {
    let visibility = shared.with(|state| state.queues[&asked.queue].visibility.as_secs());
    let name = &asked.queue;
    xml(
        200,
        &format!(
            "<Queue xmlns=\"http://mns.aliyuncs.com/doc/v1/\"><QueueName>{name}</QueueName>\
             <VisibilityTimeout>{visibility}</VisibilityTimeout><MaximumMessageSize>65536</MaximumMessageSize>\
             <MessageRetentionPeriod>345600</MessageRetentionPeriod><DelaySeconds>0</DelaySeconds></Queue>"
        ),
    )
}

async fn receive(shared: &Shared, asked: &Asked) -> Answer {
    let number = |name: &str, default: u64| match asked.query.get(name) {
        Some(text) => text.parse::<u64>().ok(),
        None => Some(default),
    };
    let (Some(count), Some(wait)) = (number("numOfMessages", 1), number("waitseconds", 0)) else {
        return refuse(400, "InvalidArgument", "a number is none");
    };
    if !(1..=BATCH_MAX as u64).contains(&count) || wait > 30 {
        return refuse(400, "InvalidArgument", "a number is out of its range");
    }
    let end = Instant::now() + Duration::from_secs(wait);
    let may_wait = shared.with(|state| {
        state.polls += 1;
        state.polls <= shared.options.polls_max
    });
    let _poll = Poll(shared);
    loop {
        let arrived = shared.arrived.notified();
        let take = |state: &mut State| {
            let queue = state.queues.get_mut(&asked.queue)?;
            Some(queue.receive(count as usize, now_ms()))
        };
        let messages = shared.with(take).unwrap_or_default();
        if !messages.is_empty() {
            return xml(200, &written(&messages));
        }
        let now = Instant::now();
        if now >= end || !may_wait {
            return refuse(404, "MessageNotExist", "Message not exist.");
        }
        let _ = tokio::time::timeout(LOOK_EVERY.min(end - now), arrived).await;
    }
}

/// A poll that is under way, also when its caller goes.
struct Poll<'a>(&'a Shared);

impl Drop for Poll<'_> {
    fn drop(&mut self) {
        self.0.with(|state| state.polls -= 1);
    }
}

fn written(messages: &[Message]) -> String {
    let mut text = String::from("<Messages xmlns=\"http://mns.aliyuncs.com/doc/v1/\">");
    for message in messages {
        let _ = write!(
            text,
            "<Message><MessageId>{}</MessageId><ReceiptHandle>{}</ReceiptHandle><MessageBody>{}</MessageBody>\
             <EnqueueTime>{}</EnqueueTime><NextVisibleTime>{}</NextVisibleTime><FirstDequeueTime>{}</FirstDequeueTime>\
             <DequeueCount>{}</DequeueCount><Priority>{}</Priority></Message>",
            message.id(),
            message.handle(),
            escape(&message.body),
            message.enqueued_ms,
            message.visible_ms,
            message.first_dequeue_ms,
            message.dequeues,
            message.priority,
        );
    }
    text.push_str("</Messages>");
    text
}

fn send(shared: &Shared, asked: &Asked) -> Answer {
    let Ok(sent) = quick_xml::de::from_str::<Sent>(&asked.body) else {
        return refuse(400, "MalformedXML", "the body is no message");
    };
    if sent.body.is_empty()
        || sent.body.len() > 65_536
        || sent.delay_seconds > 604_800
        || sent.priority > 16
    {
        return refuse(400, "InvalidArgument", "the message is out of its bounds");
    }
    let id = shared.with(|state| {
        let queue = state.queues.get_mut(&asked.queue).expect("it was there");
        queue.send(sent.body, sent.delay_seconds * 1000, sent.priority, now_ms()).id()
    });
    shared.arrived.notify_waiters();
    xml(
        201,
        &format!(
            "<Message xmlns=\"http://mns.aliyuncs.com/doc/v1/\"><MessageId>{id}</MessageId></Message>"
        ),
    )
}

fn delete(shared: &Shared, asked: &Asked, is_partly: bool) -> Answer {
    let now = now_ms();
    let one = |handle: &str| {
        shared.with(|state| {
            let queue = state.queues.get_mut(&asked.queue).expect("it was there");
            queue.delete(handle, now)
        })
    };
    if let Some(handle) = asked.query.get("ReceiptHandle") {
        return match one(handle) {
            Ok(()) => Answer { status: 204, body: String::new() },
            Err(code) => {
                refuse(if code == "MessageNotExist" { 404 } else { 400 }, code, "no such handle")
            }
        };
    }
    let Ok(Handles { handles }) = quick_xml::de::from_str::<Handles>(&asked.body) else {
        return refuse(400, "MalformedXML", "the body has no handles");
    };
    if handles.is_empty() || handles.len() > BATCH_MAX {
        return refuse(400, "InvalidArgument", "1 to 16 handles");
    }
    let mut problems = String::new();
    for (place, handle) in handles.iter().enumerate() {
        let result = if is_partly && place == 0 { Err("InternalError") } else { one(handle) };
        if let Err(code) = result {
            let _ = write!(
                problems,
                "<Error><ErrorCode>{code}</ErrorCode><ErrorMessage>not deleted</ErrorMessage>\
                 <ReceiptHandle>{handle}</ReceiptHandle></Error>"
            );
        }
    }
    if problems.is_empty() {
        return Answer { status: 204, body: String::new() };
    }
    xml(404, &format!("<Errors xmlns=\"http://mns.aliyuncs.com/doc/v1/\">{problems}</Errors>"))
}

fn show(shared: &Shared, asked: &Asked) -> Answer {
    let handle = asked.query.get("ReceiptHandle");
    let seconds = asked.query.get("VisibilityTimeout").and_then(|text| text.parse::<u64>().ok());
    let (Some(handle), Some(seconds @ 1..=43_200)) = (handle, seconds) else {
        return refuse(400, "InvalidArgument", "a handle, and 1 to 43200 seconds");
    };
    let shown = shared.with(|state| {
        let queue = state.queues.get_mut(&asked.queue).expect("it was there");
        let message = queue.show(handle, seconds * 1000, now_ms())?;
        Ok::<_, &'static str>((message.handle(), message.visible_ms))
    });
    match shown {
        Ok((handle, at)) => xml(
            200,
            &format!(
                "<ChangeVisibility xmlns=\"http://mns.aliyuncs.com/doc/v1/\"><ReceiptHandle>{handle}</ReceiptHandle>\
                 <NextVisibleTime>{at}</NextVisibleTime></ChangeVisibility>"
            ),
        ),
        Err(code) => {
            refuse(if code == "MessageNotExist" { 404 } else { 400 }, code, "no such handle")
        }
    }
}

/// A time as HTTP writes it.
fn httpdate(ms: u64) -> String {
    let time = chrono::DateTime::from_timestamp_millis(ms as i64).expect("it is a time of today");
    time.format("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

fn httpdate_ms(text: &str) -> Option<u64> {
    let time = chrono::DateTime::parse_from_rfc2822(text).ok()?;
    u64::try_from(time.timestamp_millis()).ok()
}
