//! What an endpoint's answer means for the job.

use std::time::Duration;

use chrono::DateTime;
use http::HeaderMap;

use super::Settings;
use crate::outcome::{Outcome, Scope};

/// Bytes of an answer's text that are kept as the reason.
const EXCERPT_BYTES: usize = 300;

/// What an answer means. `now_ms`: milliseconds since 1970.
pub fn judge(
    settings: &Settings,
    status: u16,
    headers: &HeaderMap,
    body: &[u8],
    now_ms: u64,
) -> Outcome {
    let why = || {
        let text = excerpt(body);
        if text.is_empty() { format!("HTTP {status}") } else { format!("HTTP {status}: {text}") }
    };
    let after = || retry_after(headers, now_ms).map(|after| after.min(settings.retry_after_max.0));
    let retry = || Outcome::Retry { after: after(), why: why(), rest: None, publishes: Vec::new() };
    match status {
        200..=299 => Outcome::done(),
        300..=399 => {
            let to = headers.get("location").map_or(String::new(), |to| excerpt(to.as_bytes()));
            Outcome::reject(format!(
                "HTTP {status}: the endpoint redirects to `{to}`; redirects are not followed, set url to the new place"
            ))
        }
        429 => Outcome::Throttle {
            scope: Scope::Target,
            until: after().unwrap_or(settings.throttle.0),
            why: why(),
        },
        408 | 421 | 425 => retry(),
        _ if settings.retry_4xx.contains(&status) => retry(),
        401 if !settings.allow_job_urls => Outcome::Config {
            why: format!("{}; the endpoint does not accept the target's credentials", why()),
        },
        410 => Outcome::reject(format!("{}; the endpoint is gone for good", why())),
        400..=499 => Outcome::reject(why()),
        // 500 to 599, and what is no status at all: the server is ill.
        _ => retry(),
    }
}

/// `Retry-After`: seconds, or a date.
fn retry_after(headers: &HeaderMap, now_ms: u64) -> Option<Duration> {
    let text = headers.get("retry-after")?.to_str().ok()?.trim();
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        // More digits than a number has are a long time too.
        return Some(Duration::from_secs(text.parse().unwrap_or(u64::from(u32::MAX))));
    }
    let date = DateTime::parse_from_rfc2822(text).ok()?.timestamp_millis();
    let left = u64::try_from(date).unwrap_or(0).saturating_sub(now_ms);
    Some(Duration::from_millis(left))
}

/// The beginning of a text from outside, on one line.
fn excerpt(bytes: &[u8]) -> String {
    let head = &bytes[..bytes.len().min(EXCERPT_BYTES)];
    let text = String::from_utf8_lossy(head);
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    line.trim().to_owned()
}
