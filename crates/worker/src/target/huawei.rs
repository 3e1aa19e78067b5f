//! Huawei Push Kit: what is asked of it, and what its answers mean.
//!
//! A job's body is that of [`fanout`](crate::target::fanout). `message` is, for v1 and v2, what Huawei's `message`
//! holds (`data` or `notification`, `android`), without `token`; for v3 the whole request (`payload`,
//! `pushOptions`), without `target.token`, and `push_type` beside it is the header `push-type` (default 0).
//!
//! Sources: HMS Core "Sending Messages" (v1, v2), HarmonyOS "push-scenariozed-api" (v3): `spec/jobs-push.md`.
//!
//! | code or status | meaning | verdict |
//! | --- | --- | --- |
//! | 80000000 | accepted | done |
//! | 80100000 | a part of the tokens failed | each token its own |
//! | 80200001, 80200003, 80200005, HTTP 401 | access token refused or expired | auth |
//! | 80300002, 80300036, 80300037, HTTP 403, 404 | app, project or clock is wrong | config |
//! | 80300007 | all tokens are invalid; an app that does not match gives it too | dead, gated |
//! | 80300008, 80300010, 80300030, other 801xxxxx | the message is wrong | reject |
//! | 80300029, HTTP 429, 503 | flow control | throttle the app |
//! | 81xxxxxx, HTTP 5xx, anything unknown | | retry |

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::feedback::Certainty;
use crate::outcome::Scope;
use crate::target::fanout::Body;
use crate::target::push::{Feedback, Verdict, shown};
use crate::value::Secret;

/// Tokens of one request.
pub const TOKENS_MAX: usize = 1000;
/// How long the app waits after flow control that names no time.
const FLOW_WAIT: Duration = Duration::from_secs(5);
/// Life of a v3 token that we sign. Huawei allows a day.
pub const JWT_LIFE: Duration = Duration::from_secs(3600);

/// Which interface is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Version {
    /// One app.
    #[default]
    V1,
    /// A project of several apps.
    V2,
    /// HarmonyOS NEXT.
    V3,
}

/// `[target.NAME] kind = "huawei"`: one app.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// `v1` (default), `v2`, or `v3` for HarmonyOS NEXT.
    #[serde(default)]
    pub version: Version,
    /// v1, v2: the app id, which is the OAuth client id.
    pub app_id: Option<String>,
    /// v1, v2: the app's secret.
    pub client_secret: Option<Secret>,
    /// v2, v3: the project id. v3: that of the service account if it is not set.
    pub project_id: Option<String>,
    /// v3: the service account's key file (JSON).
    pub service_account: Option<Secret>,
    /// Default `https://push-api.cloud.huawei.com`.
    #[serde(default = "push_url")]
    pub push_url: String,
    /// Default `https://oauth-login.cloud.huawei.com/oauth2/v3/token`.
    #[serde(default = "token_url")]
    pub token_url: String,
    /// A certificate authority (PEM) instead of the machine's.
    pub ca: Option<PathBuf>,
    /// Where dead tokens are told; not set: nowhere.
    pub feedback: Option<Feedback>,
}

fn push_url() -> String {
    "https://push-api.cloud.huawei.com".to_owned()
}

fn token_url() -> String {
    "https://oauth-login.cloud.huawei.com/oauth2/v3/token".to_owned()
}

impl Settings {
    /// What is wrong with them, in words.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut need = |is_there: bool, name: &str| {
            if !is_there {
                problems.push(format!("{name} is missing: Huawei {:?} needs it", self.version));
            }
        };
        match self.version {
            Version::V1 => {
                need(self.app_id.is_some(), "app_id");
                need(self.client_secret.is_some(), "client_secret");
            }
            Version::V2 => {
                need(self.app_id.is_some(), "app_id");
                need(self.client_secret.is_some(), "client_secret");
                need(self.project_id.is_some(), "project_id");
            }
            Version::V3 => need(self.service_account.is_some(), "service_account"),
        }
        for (name, url) in [("push_url", &self.push_url), ("token_url", &self.token_url)] {
            if !(url.starts_with("https://") || url.starts_with("http://")) {
                problems.push(format!("{name} is no http or https address"));
            }
        }
        for id in self.app_id.iter().chain(&self.project_id) {
            if id.is_empty() || !id.chars().all(|c| c.is_ascii_alphanumeric()) {
                problems.push(format!("`{id}` is no app or project id: letters and digits"));
            }
        }
        problems.extend(self.feedback.iter().flat_map(Feedback::problems));
        problems
    }
}

/// A service account's key file.
#[derive(Clone, Deserialize)]
pub struct ServiceAccount {
    pub project_id: String,
    pub key_id: String,
    pub private_key: String,
    pub sub_account: String,
}

/// The claims of a v3 token. Its header has `kid`, its algorithm is PS256.
pub fn claims(account: &ServiceAccount, audience: &str, now: Duration) -> Value {
    let (iat, exp) = (now.as_secs(), (now + JWT_LIFE).as_secs());
    json!({ "iss": account.sub_account, "aud": audience, "iat": iat, "exp": exp })
}

/// The body of a request for these tokens.
pub fn request(version: Version, body: &Body, tokens: &[&str]) -> Value {
    let message: Map<String, Value> =
        serde_json::from_str(body.message.get()).expect("a body's message is an object");
    let tokens = json!(tokens);
    match version {
        Version::V1 | Version::V2 => {
            let mut message = message;
            message.insert("token".to_owned(), tokens);
            json!({ "validate_only": false, "message": message })
        }
        Version::V3 => {
            let mut request = message;
            let target = request.entry("target").or_insert_with(|| json!({}));
            match target {
                Value::Object(target) => _ = target.insert("token".to_owned(), tokens),
                other => *other = json!({ "token": tokens }),
            }
            Value::Object(request)
        }
    }
}

/// An answer to a request.
#[derive(Clone, Copy, Debug)]
pub struct Answered<'a> {
    pub status: u16,
    pub retry_after: Option<Duration>,
    pub body: &'a [u8],
}

#[derive(Deserialize)]
struct Coded {
    code: Value,
    #[serde(default)]
    msg: String,
}

/// What an answer means for each of the request's tokens.
pub fn verdicts(answer: Answered<'_>, tokens: &[&str]) -> Vec<Verdict> {
    let coded: Option<Coded> = serde_json::from_slice(answer.body).ok();
    let all = |verdict: Verdict| vec![verdict; tokens.len()];
    match (answer.status, coded) {
        (503 | 429, _) => {
            let until = answer.retry_after.unwrap_or(FLOW_WAIT);
            let why = format!("huawei: flow control (HTTP {})", answer.status);
            all(Verdict::Throttle { scope: Scope::Target, until, why })
        }
        (401, _) => all(Verdict::Auth { why: "huawei: HTTP 401".to_owned() }),
        (_, Some(Coded { code, msg })) => {
            let code = code.as_str().map_or_else(|| code.to_string(), str::to_owned);
            match code.as_str() {
                "80100000" => partial(&msg, tokens),
                "80300007" => all_invalid(&msg, tokens),
                _ => all(whole(&code, &msg)),
            }
        }
        (status, None) => all(by_status(status)),
    }
}

/// The access token of an answer of the OAuth endpoint, and its life.
///
/// # Errors
/// Why there is none.
pub fn access_token(answer: Answered<'_>) -> Result<(String, Duration), Verdict> {
    #[derive(Deserialize)]
    struct Granted {
        access_token: String,
        expires_in: u64,
    }
    #[derive(Deserialize)]
    struct Refused {
        error: Value,
        #[serde(default)]
        error_description: String,
    }
    if answer.status == 200
        && let Ok(granted) = serde_json::from_slice::<Granted>(answer.body)
    {
        return Ok((granted.access_token, Duration::from_secs(granted.expires_in.min(86_400))));
    }
    let status = answer.status;
    let why = match serde_json::from_slice::<Refused>(answer.body) {
        Ok(Refused { error, error_description }) => {
            format!("huawei gives no access token: {error} {}", short(&error_description))
        }
        Err(_) => format!("huawei gives no access token (HTTP {status})"),
    };
    Err(match status {
        429 | 503 => Verdict::Throttle {
            scope: Scope::Target,
            until: answer.retry_after.unwrap_or(FLOW_WAIT),
            why,
        },
        400..=499 => Verdict::Config { why: format!("{why}; check app_id and client_secret") },
        _ => Verdict::Retry { after: answer.retry_after, why },
    })
}

fn by_status(status: u16) -> Verdict {
    let why = format!("huawei answered HTTP {status} without a code");
    match status {
        403 | 404 => Verdict::Config { why: format!("{why}; check push_url, app_id, project_id") },
        400 | 413 => Verdict::Reject { why },
        _ => Verdict::Retry { after: None, why },
    }
}

/// A code that is about the whole request.
fn whole(code: &str, msg: &str) -> Verdict {
    let why = format!("huawei {code}: {}", short(msg));
    match code {
        "80000000" => Verdict::Done,
        "80200001" | "80200003" | "80200005" => Verdict::Auth { why },
        "80300002" | "80300036" | "80300037" | "80200006" => Verdict::Config { why },
        "80300029" => {
            Verdict::Throttle { scope: Scope::Target, until: Duration::from_secs(60), why }
        }
        "80300008" | "80300010" | "80300030" => Verdict::Reject { why },
        code if code.starts_with("801") => Verdict::Reject { why },
        _ => Verdict::Retry { after: None, why },
    }
}

/// What `msg` says of single tokens: by reason (v3), or without one (v1, v2).
struct Listed {
    failure: usize,
    by_reason: BTreeMap<String, Vec<String>>,
}

/// Huawei writes JSON into a text, and its names in two ways.
fn listed(msg: &str) -> Option<Listed> {
    let msg: Map<String, Value> = serde_json::from_str(msg).ok()?;
    let texts = |value: &Value| -> Vec<String> {
        let list = value.as_array().into_iter().flatten();
        list.filter_map(|text| text.as_str().map(str::to_owned)).collect()
    };
    let illegal = msg.get("illegal_tokens").or_else(|| msg.get("illegalTokens"))?;
    let by_reason = match illegal {
        Value::Object(reasons) => reasons
            .iter()
            .map(|(reason, tokens)| (reason.trim().to_owned(), texts(tokens)))
            .collect(),
        tokens => BTreeMap::from([("illegal_tokens".to_owned(), texts(tokens))]),
    };
    let failure = msg.get("failure").and_then(Value::as_u64).unwrap_or(0) as usize;
    Some(Listed { failure, by_reason })
}

/// 80100000: the tokens that it lists failed, the others did not. Where it counts more failures than it lists, the
/// others are unknown, and tried again: a message twice is better than none.
fn partial(msg: &str, tokens: &[&str]) -> Vec<Verdict> {
    let Some(listed) = listed(msg) else {
        let why = "huawei 80100000: some tokens failed, but it does not say which".to_owned();
        return vec![Verdict::Retry { after: None, why }; tokens.len()];
    };
    let count = listed.by_reason.values().map(Vec::len).sum::<usize>();
    let others = if listed.failure > count {
        let why = format!("huawei 80100000: {} tokens failed, {count} are named", listed.failure);
        Verdict::Retry { after: None, why }
    } else {
        Verdict::Done
    };
    each("80100000", &listed, tokens, &others)
}

/// 80300007: no token is valid. v3 says why.
fn all_invalid(msg: &str, tokens: &[&str]) -> Vec<Verdict> {
    let others = dead("80300007");
    match listed(msg) {
        Some(listed) => each("80300007", &listed, tokens, &others),
        None => vec![others; tokens.len()],
    }
}

fn each(code: &str, listed: &Listed, tokens: &[&str], others: &Verdict) -> Vec<Verdict> {
    let reasons: BTreeMap<&str, &str> = listed
        .by_reason
        .iter()
        .flat_map(|(reason, tokens)| tokens.iter().map(|token| (token.as_str(), reason.as_str())))
        .collect();
    let verdict = |token: &&str| reasons.get(token).map(|reason| one(code, reason, token));
    tokens.iter().map(|token| verdict(token).unwrap_or_else(|| others.clone())).collect()
}

/// A reason that is about one token. Only what is listed here makes a token dead.
fn one(code: &str, reason: &str, token: &str) -> Verdict {
    let why = format!("huawei {code} {reason} for {}", shown(token));
    match reason {
        "illegal_tokens" | "tokenFormatError" | "tokenPlatformNotSupport" | "noRight" => {
            dead(&format!("{code} {reason}"))
        }
        "noPushTypeRight"
        | "noRightToSendThisLiveNotificationEvent"
        | "disableSendHuaweiMsgBecauseOfPenalty"
        | "appinfoError" => Verdict::Config { why },
        "atomicUnableSendUnsubscribedMsg"
        | "countryNotSupport"
        | "differentImgVerifyPolicy"
        | "notSupportPlayVoice" => Verdict::Reject { why },
        _ => Verdict::Retry { after: None, why },
    }
}

fn dead(reason: &str) -> Verdict {
    Verdict::Dead { reason: reason.to_owned(), certainty: Certainty::Candidate, since_ms: None }
}

/// A provider's text, shortened: it may be long, and may repeat tokens.
fn short(text: &str) -> String {
    text.chars().take(120).collect()
}

#[cfg(test)]
mod tests;
