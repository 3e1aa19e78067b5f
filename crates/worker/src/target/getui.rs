//! Getui REST v2: what is asked of it, and what its answers mean.
//!
//! A job's body is that of [`fanout`](crate::target::fanout); its tokens are cids. `message` holds `push_message`,
//! and may hold `settings` and `push_channel`. `request_id` and `audience` are ours: the id is made of the job's id
//! and the cid, because Getui drops an id that it has seen. So an attempt that was accepted, but whose answer was
//! lost, is not shown twice.
//!
//! Sources: docs.getui.com REST v2: `spec/jobs-push.md`. The classes are our reading.
//!
//! | code | meaning | verdict |
//! | --- | --- | --- |
//! | 0 | each cid has a status | done for `successed_…`; a cid without a status goes alone |
//! | 1 | not JSON | reject |
//! | 2 | service starting | retry |
//! | 301 | wrong domain | the next domain; config if none takes it |
//! | 10001 | the token has expired | auth |
//! | 10002 | blacklisted app or address | config |
//! | 10003, 10005 | rate limits, with HTTP 401 | throttle the app for a minute |
//! | 20001 | told apart by `msg` | "target user is invalid": dead, gated; else reject; a batch goes one by one |
//! | 3xxxx | quota or package (HTTP 403) | throttle the app for ten minutes |
//! | HTTP 401, 403, 404 without a code | | auth; config |
//! | HTTP 429, 503; other 5xx and what is unknown | | throttle; retry |

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::feedback::Certainty;
use crate::outcome::Scope;
use crate::target::fanout::Body;
use crate::target::push::{Feedback, Verdict, hash};
use crate::value::Secret;

/// Messages of one request.
pub const MESSAGES_MAX: usize = 200;
/// Requests of one run, where a batch has to go one by one.
pub const REQUESTS_MAX: usize = 50;
/// How long the app waits after a rate limit: both are by the minute.
const RATE_WAIT: Duration = Duration::from_secs(60);
/// How long the app waits after a used-up quota that names no end.
const QUOTA_WAIT: Duration = Duration::from_secs(600);

/// `[target.NAME] kind = "getui"`: one app.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    pub app_id: String,
    pub app_key: Secret,
    pub master_secret: Secret,
    /// Where requests go, with the next one after "wrong domain". Default: restapi, cncrestapi and nzrestapi
    /// of `getui.com`.
    #[serde(default = "urls")]
    pub urls: Vec<String>,
    /// A certificate authority (PEM) instead of the machine's.
    pub ca: Option<PathBuf>,
    /// Where dead tokens are told; not set: nowhere.
    pub feedback: Option<Feedback>,
}

fn urls() -> Vec<String> {
    ["restapi", "cncrestapi", "nzrestapi"].map(|name| format!("https://{name}.getui.com")).to_vec()
}

impl Settings {
    /// What is wrong with them, in words.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.app_id.is_empty() || !self.app_id.chars().all(|c| c.is_ascii_alphanumeric()) {
            problems.push("app_id is no app id: letters and digits".to_owned());
        }
        if self.urls.is_empty() || self.urls.len() > 8 {
            problems.push("urls has 1 to 8 addresses".to_owned());
        }
        if !self.urls.iter().all(|url| url.starts_with("https://") || url.starts_with("http://")) {
            problems.push("urls has something that is no http or https address".to_owned());
        }
        problems.extend(self.feedback.iter().flat_map(Feedback::problems));
        problems
    }
}

/// The body of a request for an access token.
pub fn auth_request(app_key: &str, master_secret: &str, now_ms: u64) -> Value {
    let mut hash = Sha256::new();
    for part in [app_key, &now_ms.to_string(), master_secret] {
        hash.update(part.as_bytes());
    }
    let sign: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    json!({ "sign": sign, "timestamp": now_ms.to_string(), "appkey": app_key })
}

/// The message for one cid of a job.
///
/// # Errors
/// A field that the target sets, by its name.
pub fn message(job_id: &str, cid: &str, body: &Body) -> Result<Value, String> {
    let mut message: Map<String, Value> =
        serde_json::from_str(body.message.get()).expect("a body's message is an object");
    for name in ["request_id", "audience"] {
        if message.contains_key(name) {
            return Err(format!("message.{name} is set by the target"));
        }
    }
    let id = format!("{:032x}", hash(&[job_id, "\0", cid]));
    message.insert("request_id".to_owned(), json!(id));
    message.insert("audience".to_owned(), json!({ "cid": [cid] }));
    Ok(Value::Object(message))
}

/// The body of a request with several messages.
pub fn batch(messages: Vec<Value>) -> Value {
    json!({ "is_async": false, "msg_list": messages })
}

/// An answer to a request.
#[derive(Clone, Copy, Debug)]
pub struct Answered<'a> {
    pub status: u16,
    pub retry_after: Option<Duration>,
    pub body: &'a [u8],
}

/// What an answer means for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// One for each cid.
    Each(Vec<One>),
    /// The same for all.
    All(Verdict),
    /// This domain does not serve the app: ask the next one.
    WrongDomain,
    /// Something is wrong with one of them: send each alone to see which.
    Split,
}

/// What an answer means for one cid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum One {
    Known(Verdict),
    /// The answer does not name it: send it alone.
    Unnamed,
}

#[derive(Deserialize)]
struct Coded {
    code: i64,
    #[serde(default)]
    msg: String,
    #[serde(default)]
    data: Value,
}

/// Reads an answer.
pub fn meaning(answer: Answered<'_>, cids: &[&str]) -> Meaning {
    match serde_json::from_slice::<Coded>(answer.body) {
        Ok(coded) if coded.code == 0 => Meaning::Each(each(&coded.data, cids)),
        Ok(coded) => by_code(&coded, cids.len()),
        Err(_) => Meaning::All(by_status(answer)),
    }
}

/// The access token of an answer, and its life.
///
/// # Errors
/// Why there is none. Wrong domain: none inside.
pub fn access_token(
    answer: Answered<'_>,
    now_ms: u64,
) -> Result<(String, Duration), Option<Verdict>> {
    let coded: Option<Coded> = serde_json::from_slice(answer.body).ok();
    if let Some(Coded { code: 0, data, .. }) = &coded
        && let Some(token) = data.get("token").and_then(Value::as_str)
    {
        let ends = data.get("expire_time").and_then(|ends| match ends {
            Value::String(text) => text.parse::<u64>().ok(),
            other => other.as_u64(),
        });
        // Not told: a day, as documented, of which we use the half.
        let life = ends.map_or(43_200_000, |ends| ends.saturating_sub(now_ms).min(86_400_000));
        return Ok((token.to_owned(), Duration::from_millis(life)));
    }
    let meaning = coded.map_or_else(|| Meaning::All(by_status(answer)), |coded| by_code(&coded, 1));
    Err(match meaning {
        Meaning::WrongDomain => None,
        Meaning::All(Verdict::Auth { why } | Verdict::Reject { why }) => {
            Some(Verdict::Config { why: format!("{why}; check app_id, app_key, master_secret") })
        }
        Meaning::All(Verdict::Dead { reason, .. }) => Some(Verdict::Config { why: reason }),
        Meaning::All(verdict) => Some(verdict),
        Meaning::Each(_) | Meaning::Split => {
            let why = "getui gives no access token, and does not say why".to_owned();
            Some(Verdict::Retry { after: None, why })
        }
    })
}

/// `data` is `{taskid: {cid: status}}`.
fn each(data: &Value, cids: &[&str]) -> Vec<One> {
    let tasks: Vec<&Map<String, Value>> =
        data.as_object().into_iter().flatten().filter_map(|(_, task)| task.as_object()).collect();
    let status = |cid: &str| tasks.iter().find_map(|task| task.get(cid)).and_then(Value::as_str);
    let one = |cid: &&str| match status(cid) {
        None => One::Unnamed,
        // `successed_ignore`: a phone that was away for 90 days. Getui drops the message, and there is no other way.
        Some(text) if text.starts_with("successed") => One::Known(Verdict::Done),
        Some(text) if is_invalid_user(text) => One::Known(dead(text)),
        Some(text) => {
            let why = format!("getui status {}", short(text));
            One::Known(Verdict::Retry { after: None, why })
        }
    };
    cids.iter().map(one).collect()
}

fn by_code(coded: &Coded, count: usize) -> Meaning {
    let why = format!("getui {}: {}", coded.code, short(&coded.msg));
    let throttle = |until| Verdict::Throttle { scope: Scope::Target, until, why: why.clone() };
    Meaning::All(match coded.code {
        301 => return Meaning::WrongDomain,
        20001 if count > 1 => return Meaning::Split,
        20001 if is_invalid_user(&coded.msg) => dead(&why),
        1 | 20001 => Verdict::Reject { why },
        10001 => Verdict::Auth { why },
        10002 => Verdict::Config { why },
        10003 | 10005 => throttle(RATE_WAIT),
        30000..=39999 => throttle(QUOTA_WAIT),
        _ => Verdict::Retry { after: None, why },
    })
}

fn by_status(answer: Answered<'_>) -> Verdict {
    let why = format!("getui answered HTTP {} without a code", answer.status);
    match answer.status {
        401 => Verdict::Auth { why },
        403 | 404 => Verdict::Config { why: format!("{why}; check urls and app_id") },
        400 | 413 => Verdict::Reject { why },
        429 | 503 => Verdict::Throttle {
            scope: Scope::Target,
            until: answer.retry_after.unwrap_or(RATE_WAIT),
            why,
        },
        _ => Verdict::Retry { after: answer.retry_after, why },
    }
}

fn is_invalid_user(text: &str) -> bool {
    text.to_ascii_lowercase().contains("target user is invalid")
}

fn dead(reason: &str) -> Verdict {
    let reason = short(reason);
    Verdict::Dead { reason, certainty: Certainty::Candidate, since_ms: None }
}

fn short(text: &str) -> String {
    text.chars().take(120).collect()
}

#[cfg(test)]
mod tests;
