//! What an SQS source can be told.

use std::time::Duration;

use serde::Deserialize;

use crate::io::source::driver::Pace;
use crate::limits::FETCHERS_MAX;
use crate::source::sqs::BATCH_MAX;
use crate::source::visibility::VISIBILITY_MAX;
use crate::value::{Secret, Time};

/// An SQS source.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// `https://sqs.REGION.amazonaws.com/ACCOUNT/NAME`.
    pub queue_url: String,
    /// The queue that dead jobs are sent to.
    pub dead_queue_url: String,
    pub region: String,
    pub access_key_id: String,
    pub secret_access_key: Secret,
    /// The token of temporary credentials (STS); none: they are permanent.
    #[serde(default)]
    pub session_token: Option<Secret>,
    /// Where calls go; none: the server of `queue_url`.
    #[serde(default)]
    pub endpoint: Option<String>,
    /// Receive calls at the same time. 1 to 64, default 2.
    #[serde(default = "two")]
    pub fetchers: usize,
    /// Messages per receive call. 1 to 10, default 10.
    #[serde(default = "ten")]
    pub batch: usize,
    /// How long a receive call waits for a message. Up to 20 s, default 20 s, and at most half of `lease`.
    #[serde(default = "twenty_seconds")]
    pub wait: Time,
    /// Calls that settle at the same time. 1 to 64, default 2.
    #[serde(default = "two")]
    pub deleters: usize,
    /// Messages per delete call. 1 to 10, default 10.
    #[serde(default = "ten")]
    pub delete_batch: usize,
    /// How long a delete waits for company. Up to 1 s, default 100 ms.
    #[serde(default = "a_moment")]
    pub delete_after: Time,
    /// A fetcher receives again only when everything that it received is settled. Default false.
    #[serde(default)]
    pub synchronous: bool,
    /// How long a job is this worker's, unless it is renewed: the visibility timeout. 1 s to 12 h, default 2 min.
    #[serde(default = "two_minutes")]
    pub lease: Time,
}

fn two() -> usize {
    2
}

fn ten() -> usize {
    BATCH_MAX
}

fn twenty_seconds() -> Time {
    Time(Duration::from_secs(20))
}

fn a_moment() -> Time {
    Time(Duration::from_millis(100))
}

fn two_minutes() -> Time {
    Time(Duration::from_secs(120))
}

impl Settings {
    /// What is wrong with them.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut check = |is_good: bool, problem: &str| {
            if !is_good {
                problems.push(problem.to_owned());
            }
        };
        let form = "write https://sqs.REGION.amazonaws.com/ACCOUNT/NAME";
        check(is_url(&self.queue_url, true), &format!("queue_url: {form}"));
        check(is_url(&self.dead_queue_url, true), &format!("dead_queue_url: {form}"));
        check(
            self.queue_url != self.dead_queue_url,
            "dead_queue_url: write another queue than `queue_url`",
        );
        let is_endpoint = self.endpoint.as_ref().is_none_or(|endpoint| is_url(endpoint, false));
        check(is_endpoint, "endpoint: write https://HOST");
        check(!self.region.is_empty(), "region: write it");
        check(!self.access_key_id.is_empty(), "access_key_id: write it");
        check((1..=FETCHERS_MAX).contains(&self.fetchers), "fetchers: write 1 to 64");
        check((1..=BATCH_MAX).contains(&self.batch), "batch: write 1 to 10");
        check(self.wait.0 <= Duration::from_secs(20), "wait: write at most 20s");
        check((1..=FETCHERS_MAX).contains(&self.deleters), "deleters: write 1 to 64");
        check((1..=BATCH_MAX).contains(&self.delete_batch), "delete_batch: write 1 to 10");
        check(self.delete_after.0 <= Duration::from_secs(1), "delete_after: write at most 1s");
        let is_lease = (Duration::from_secs(1)..=VISIBILITY_MAX).contains(&self.lease.0)
            && self.lease.0.subsec_nanos() == 0;
        check(is_lease, "lease: write 1s to 12h, in whole seconds");
        check(self.wait.0 * 2 <= self.lease.0, "wait: write at most half of `lease`");
        problems
    }

    /// Where calls go.
    pub(super) fn endpoint(&self) -> String {
        if let Some(endpoint) = &self.endpoint {
            return endpoint.trim_end_matches('/').to_owned();
        }
        let uri: http::Uri = self.queue_url.parse().unwrap_or_default();
        let scheme = uri.scheme_str().unwrap_or("https");
        format!("{scheme}://{}", uri.authority().map_or("", |authority| authority.as_str()))
    }

    pub(super) fn pace(&self) -> Pace {
        Pace {
            fetchers: self.fetchers,
            fetch_max: self.batch,
            settlers: self.deleters,
            settle_max: self.delete_batch,
            settle_after: self.delete_after.0,
            is_synchronous: self.synchronous,
        }
    }
}

fn is_url(text: &str, has_path: bool) -> bool {
    text.parse::<http::Uri>().is_ok_and(|uri| {
        matches!(uri.scheme_str(), Some("http" | "https"))
            && uri.host().is_some()
            && has_path != matches!(uri.path(), "" | "/")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "queue_url = 'https://sqs.eu-west-1.amazonaws.com/1/jobs'\n\
                        dead_queue_url = 'https://sqs.eu-west-1.amazonaws.com/1/dead'\n\
                        region = 'eu-west-1'\naccess_key_id = 'id'\nsecret_access_key = 'canary'\n";

    #[test]
    fn settings_have_bounds_and_hide_their_secret() {
        let good: Settings = toml::from_str(GOOD).expect("it is right");
        assert!(good.problems().is_empty(), "{:?}", good.problems());
        assert_eq!(good.endpoint(), "https://sqs.eu-west-1.amazonaws.com");
        assert!(!format!("{good:?}").contains("canary"));
        let text = "batch = 11\nfetchers = 0\nwait = '21s'\ndeleters = 65\ndelete_batch = 0\n\
                    delete_after = '2s'\nlease = '13h'\nendpoint = 'x'\n";
        let bad: Settings = toml::from_str(&format!("{GOOD}{text}")).expect("it can be read");
        assert_eq!(bad.problems().len(), 8, "{:?}", bad.problems());
        let short: Settings =
            toml::from_str(&format!("{GOOD}lease = '30s'")).expect("it can be read");
        assert_eq!(short.problems().len(), 1, "a poll may not use up the lease");
    }
}
