//! What an MNS source can be told.

use std::time::Duration;

use serde::Deserialize;

use crate::io::source::driver::Pace;
use crate::limits::FETCHERS_MAX;
use crate::source::mns::BATCH_MAX;
use crate::source::visibility::VISIBILITY_MAX;
use crate::value::{Secret, Time};

/// An MNS source.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// `https://ACCOUNT.mns.REGION.aliyuncs.com`.
    pub endpoint: String,
    pub access_key_id: String,
    pub access_key_secret: Secret,
    /// The token of temporary credentials (STS); none: they are permanent.
    #[serde(default)]
    pub security_token: Option<Secret>,
    /// The queue's name.
    pub queue: String,
    /// The queue that dead jobs are sent to.
    pub dead_queue: String,
    /// Bodies are base64, as the SDKs of Aliyun write them. Default true.
    #[serde(default = "yes")]
    pub base64: bool,
    /// Receive calls at the same time. 1 to 64, default 2.
    #[serde(default = "two")]
    pub fetchers: usize,
    /// Messages per receive call. 1 to 16, default 16.
    #[serde(default = "sixteen")]
    pub batch: usize,
    /// How long a receive call waits for a message. Up to 30 s, default 10 s, and never more than half of the queue's
    /// invisibility.
    #[serde(default = "ten_seconds")]
    pub wait: Time,
    /// Calls that delete at the same time. 1 to 64, default 2.
    #[serde(default = "two")]
    pub deleters: usize,
    /// Messages per delete call. 1 to 16, default 16.
    #[serde(default = "sixteen")]
    pub delete_batch: usize,
    /// How long a delete waits for company. Up to 1 s, default 100 ms.
    #[serde(default = "a_moment")]
    pub delete_after: Time,
    /// A fetcher receives again only when everything that it received is settled. Default false.
    #[serde(default)]
    pub synchronous: bool,
    /// How long a renewed lease is. 1 s to 12 h, default 5 min. The first lease is the queue's own invisibility.
    #[serde(default = "five_minutes")]
    pub lease: Time,
}

fn yes() -> bool {
    true
}

fn two() -> usize {
    2
}

fn sixteen() -> usize {
    BATCH_MAX
}

fn ten_seconds() -> Time {
    Time(Duration::from_secs(10))
}

fn a_moment() -> Time {
    Time(Duration::from_millis(100))
}

fn five_minutes() -> Time {
    Time(Duration::from_secs(300))
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
        let is_http = self.endpoint.parse::<http::Uri>().is_ok_and(|uri| {
            matches!(uri.scheme_str(), Some("http" | "https"))
                && uri.host().is_some()
                && matches!(uri.path(), "" | "/")
        });
        check(is_http, "endpoint: write https://ACCOUNT.mns.REGION.aliyuncs.com");
        check(!self.access_key_id.is_empty(), "access_key_id: write it");
        check(is_name(&self.queue), "queue: write a name of letters, digits, - and _");
        check(is_name(&self.dead_queue), "dead_queue: write a name of letters, digits, - and _");
        check(self.queue != self.dead_queue, "dead_queue: write another name than `queue`");
        check((1..=FETCHERS_MAX).contains(&self.fetchers), "fetchers: write 1 to 64");
        check((1..=BATCH_MAX).contains(&self.batch), "batch: write 1 to 16");
        check(self.wait.0 <= Duration::from_secs(30), "wait: write at most 30s");
        check((1..=FETCHERS_MAX).contains(&self.deleters), "deleters: write 1 to 64");
        check((1..=BATCH_MAX).contains(&self.delete_batch), "delete_batch: write 1 to 16");
        check(self.delete_after.0 <= Duration::from_secs(1), "delete_after: write at most 1s");
        let is_lease = (Duration::from_secs(1)..=VISIBILITY_MAX).contains(&self.lease.0);
        check(is_lease, "lease: write 1s to 12h");
        problems
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

fn is_name(text: &str) -> bool {
    let is_sign = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    !text.is_empty() && text.len() <= 256 && text.chars().all(is_sign)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "endpoint = 'http://1.mns.cn-x.aliyuncs.com'\naccess_key_id = 'id'\n\
                        access_key_secret = 'canary'\nqueue = 'a'\ndead_queue = 'b'\n";

    #[test]
    fn settings_have_bounds_and_hide_their_secret() {
        let good: Settings = toml::from_str(GOOD).expect("it is right");
        assert!(good.problems().is_empty(), "{:?}", good.problems());
        assert!(!format!("{good:?}").contains("canary"));
        let text = "batch = 17\nfetchers = 0\nwait = '31s'\ndeleters = 65\ndelete_batch = 0\n\
                    delete_after = '2s'\nlease = '13h'\n";
        let bad: Settings = toml::from_str(&format!("{GOOD}{text}")).expect("it can be read");
        assert_eq!(bad.problems().len(), 7, "{:?}", bad.problems());
        let text = GOOD.replace("'b'", "'a'").replace("http://1", "ftp://1");
        let bad: Settings = toml::from_str(&text).expect("it can be read");
        assert_eq!(bad.problems().len(), 2, "{:?}", bad.problems());
    }
}
