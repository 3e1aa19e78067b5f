//! Xiaomi MiPush: what is asked of it, and what its answers mean.
//!
//! A job's body is that of [`fanout`](crate::target::fanout). `message` holds the form's fields by their names
//! (`title`, `description`, `payload`, `pass_through`, `notify_type`, `time_to_live`, …) as texts, numbers or
//! booleans; `extra` is an object, whose members become `extra.NAME`. `registration_id` and
//! `restricted_package_name` are ours. With `per_device = true` jobs with different messages share a request
//! (`/v2/multi_messages/regids`), and `message` is sent as JSON.
//!
//! Sources: MiPush server API (dev.mi.com): `spec/jobs-push.md`; `bad_regids` and 20301 as public clients read them.
//! The classes are our reading. A refused request with a message for each token is sent again one by one, so that one
//! wrong message does not take the others with it.
//!
//! | code | verdict |
//! | --- | --- |
//! | 0 | done, but for the tokens in `data.bad_regids`: dead, gated |
//! | 10029, 20301 | dead, gated |
//! | -1, 1, 10001, 10002, 10003, 20607, 26003, 65029 and what is unknown, HTTP 5xx | retry |
//! | 10027, 26004, 10030, HTTP 429, 503 | throttle the app for a minute |
//! | 10034 | the day's quota is used up: throttle the app until the next day of Asia/Shanghai |
//! | 21301, 21302, 22000, 22006, 22007, 22022, 10031, 10036, 26006, 27001, HTTP 401, 403, 404 | config |
//! | 10008, 10012, 10016, 10017, 65009, 65014, 65015, HTTP 400 | reject |

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use chrono::{DateTime, Days, NaiveTime};
use chrono_tz::Asia::Shanghai;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::feedback::Certainty;
use crate::outcome::Scope;
use crate::target::fanout::Body;
use crate::target::push::{Feedback, Verdict};
use crate::value::{Secret, Time};

/// Tokens of one request.
pub const TOKENS_MAX: usize = 1000;
/// Requests of one run, where messages that shared a request have to go one by one.
pub const REQUESTS_MAX: usize = 50;
/// Invalid regids that one fetch tells.
pub const INVALID_MAX: usize = 10_000;
/// How long the app waits after a rate limit.
const RATE_WAIT: Duration = Duration::from_secs(60);

/// Which interface is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Version {
    /// One package.
    V2,
    /// One or several packages.
    #[default]
    V3,
}

/// `[target.NAME] kind = "xiaomi"`: one app.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// `v3` (default) or `v2`.
    #[serde(default)]
    pub version: Version,
    /// The app's package name, or several with commas (v3).
    pub package: String,
    /// The app's AppSecret.
    pub app_secret: Secret,
    /// Jobs with different messages share a request, with a message for each token. Default false.
    #[serde(default)]
    pub per_device: bool,
    /// Default `https://api.xmpush.xiaomi.com`.
    #[serde(default = "url")]
    pub url: String,
    /// How often the list of invalid regids is fetched, 1m to 1d; not set: never. Each fetch rides on a job that was
    /// done, whose settlement waits for the messages. Xiaomi gives each regid once: those of a fetch are lost if the
    /// process is killed before that job is settled. Needs `feedback`.
    pub invalid_poll: Option<Time>,
    /// Default `https://feedback.xmpush.xiaomi.com`.
    #[serde(default = "feedback_url")]
    pub feedback_url: String,
    /// A certificate authority (PEM) instead of the machine's.
    pub ca: Option<PathBuf>,
    /// Where dead tokens are told; not set: nowhere.
    pub feedback: Option<Feedback>,
}

fn url() -> String {
    "https://api.xmpush.xiaomi.com".to_owned()
}

fn feedback_url() -> String {
    "https://feedback.xmpush.xiaomi.com".to_owned()
}

impl Settings {
    /// What is wrong with them, in words.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.package.is_empty() || self.package.len() > 1024 {
            problems.push("package is empty or longer than 1024 bytes".to_owned());
        }
        if self.version == Version::V2 && self.package.contains(',') {
            problems
                .push("package names several packages: Xiaomi v2 takes one, v3 several".to_owned());
        }
        for (name, url) in [("url", &self.url), ("feedback_url", &self.feedback_url)] {
            if !(url.starts_with("https://") || url.starts_with("http://")) {
                problems.push(format!("{name} is no http or https address"));
            }
        }
        let (minute, day) = (Duration::from_secs(60), Duration::from_secs(24 * 3600));
        if self.invalid_poll.is_some_and(|poll| !(minute..=day).contains(&poll.0)) {
            problems.push("invalid_poll is not between 1m and 1d".to_owned());
        }
        if self.invalid_poll.is_some() && self.feedback.is_none() {
            problems.push("invalid_poll needs feedback: say where dead tokens are told".to_owned());
        }
        problems.extend(self.feedback.iter().flat_map(Feedback::problems));
        problems
    }

    /// Where a request goes.
    pub fn path(&self) -> &'static str {
        match (self.per_device, self.version) {
            (true, _) => "/v2/multi_messages/regids",
            (false, Version::V2) => "/v2/message/regid",
            (false, Version::V3) => "/v3/message/regid",
        }
    }
}

/// The fields of a form for tokens that all get one message.
///
/// # Errors
/// A field that cannot be in a form, by its name.
pub fn fields(
    body: &Body,
    package: &str,
    tokens: &[&str],
) -> Result<Vec<(String, String)>, String> {
    let mut fields = vec![
        ("registration_id".to_owned(), tokens.join(",")),
        ("restricted_package_name".to_owned(), package.to_owned()),
    ];
    for (name, value) in message(body) {
        match (name.as_str(), value) {
            ("registration_id" | "restricted_package_name", _) => {
                return Err(format!("message.{name} is set by the target"));
            }
            ("extra", Value::Object(extras)) => {
                for (key, value) in extras {
                    let text =
                        text(value).ok_or_else(|| format!("message.extra.{key} is no text"))?;
                    fields.push((format!("extra.{key}"), text));
                }
            }
            (_, value) => {
                let text = text(value).ok_or_else(|| format!("message.{name} is no text"))?;
                fields.push((name, text));
            }
        }
    }
    Ok(fields)
}

/// The field `messages` of a form for tokens that each get their own message.
pub fn messages(pieces: &[(&str, &Body)], package: &str) -> String {
    let one = |(token, body): &(&str, &Body)| {
        let mut message = message(body);
        message.insert("restricted_package_name".to_owned(), json!(package));
        json!({ "target": token, "message": message })
    };
    Value::Array(pieces.iter().map(one).collect()).to_string()
}

fn message(body: &Body) -> Map<String, Value> {
    serde_json::from_str(body.message.get()).expect("a body's message is an object")
}

fn text(value: Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(is_so) => Some(if is_so { "1" } else { "0" }.to_owned()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// An answer to a request.
#[derive(Clone, Copy, Debug)]
pub struct Answered<'a> {
    pub status: u16,
    pub retry_after: Option<Duration>,
    pub body: &'a [u8],
    /// Milliseconds since 1970.
    pub now_ms: u64,
}

#[derive(Deserialize)]
struct Coded {
    code: i64,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    data: Value,
}

/// What an answer means for each of the request's tokens.
pub fn verdicts(answer: Answered<'_>, tokens: &[&str]) -> Vec<Verdict> {
    let all = |verdict: Verdict| vec![verdict; tokens.len()];
    match serde_json::from_slice::<Coded>(answer.body) {
        Ok(coded) if coded.code == 0 && answer.status == 200 => accepted(&coded.data, tokens),
        Ok(coded) => all(by_code(&coded, answer.now_ms)),
        Err(_) => all(by_status(answer)),
    }
}

/// Accepted, but for the tokens that it names.
fn accepted(data: &Value, tokens: &[&str]) -> Vec<Verdict> {
    let bad = data.get("bad_regids").or_else(|| data.get("bad_regIds"));
    let bad: BTreeSet<&str> = match bad {
        Some(Value::String(list)) => list.split(',').map(str::trim).collect(),
        Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).collect(),
        Some(_) | None => BTreeSet::new(),
    };
    let verdict =
        |token: &&str| if bad.contains(token) { dead("bad_regids") } else { Verdict::Done };
    tokens.iter().map(verdict).collect()
}

/// The regids of an answer of `/v1/feedback/fetch_invalid_regids`, at most [`INVALID_MAX`].
///
/// # Errors
/// Why there are none.
pub fn invalid(answer: Answered<'_>) -> Result<Vec<String>, Verdict> {
    let coded = match serde_json::from_slice::<Coded>(answer.body) {
        Ok(coded) => coded,
        Err(_) => return Err(by_status(answer)),
    };
    if coded.code != 0 {
        return Err(by_code(&coded, answer.now_ms));
    }
    let list = coded.data.get("list").and_then(Value::as_array);
    let regids = list.into_iter().flatten().filter_map(Value::as_str);
    Ok(regids.take(INVALID_MAX).map(str::to_owned).collect())
}

fn by_code(coded: &Coded, now_ms: u64) -> Verdict {
    let words = if coded.reason.is_empty() { &coded.description } else { &coded.reason };
    let words: String = words.chars().take(120).collect();
    let why = format!("xiaomi {}: {words}", coded.code);
    let throttle = |until| Verdict::Throttle { scope: Scope::Target, until, why: why.clone() };
    match coded.code {
        10029 | 20301 => dead(&coded.code.to_string()),
        10027 | 26004 | 10030 => throttle(RATE_WAIT),
        10034 => throttle(until_next_day(now_ms)),
        21301 | 21302 | 22000 | 22006 | 22007 | 22022 | 10031 | 10036 | 26006 | 27001 => {
            Verdict::Config { why }
        }
        10008 | 10012 | 10016 | 10017 | 65009 | 65014 | 65015 => Verdict::Reject { why },
        _ => Verdict::Retry { after: None, why },
    }
}

fn by_status(answer: Answered<'_>) -> Verdict {
    let why = format!("xiaomi answered HTTP {} without a code", answer.status);
    match answer.status {
        429 | 503 => Verdict::Throttle {
            scope: Scope::Target,
            until: answer.retry_after.unwrap_or(RATE_WAIT),
            why,
        },
        401 | 403 | 404 => Verdict::Config { why: format!("{why}; check url and app_secret") },
        400 | 413 => Verdict::Reject { why },
        _ => Verdict::Retry { after: answer.retry_after, why },
    }
}

fn dead(reason: &str) -> Verdict {
    Verdict::Dead { reason: reason.to_owned(), certainty: Certainty::Candidate, since_ms: None }
}

/// How long the day of Asia/Shanghai still lasts.
pub fn until_next_day(now_ms: u64) -> Duration {
    let day = Duration::from_secs(24 * 3600);
    let now = i64::try_from(now_ms).ok().and_then(DateTime::from_timestamp_millis);
    let Some(now) = now.map(|now| now.with_timezone(&Shanghai)) else {
        return day;
    };
    let next = now.date_naive().checked_add_days(Days::new(1));
    let next =
        next.and_then(|date| date.and_time(NaiveTime::MIN).and_local_timezone(Shanghai).earliest());
    next.and_then(|next| (next - now).to_std().ok()).unwrap_or(day)
}

#[cfg(test)]
mod tests;
