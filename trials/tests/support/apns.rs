//! What the tests of pushes to Apple devices share: a server, a target, and pushes.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use trials::providers::apns::{Counts, ISSUER, KEY_ID, Options, Received, Server};
use worker::io::target::apns::Apns;
use worker::io::target::{Run, Target};
use worker::target::apns::Settings;
use worker::{Message, Outcome};

/// Longer than anything here takes.
pub(crate) const LONG: Duration = Duration::from_secs(60);
/// A device token that the server takes.
pub(crate) const GOOD: &str = "a000000000000000000000000000000000000000000000000000000000000001";

/// A server, and what a target needs to push to it.
pub(crate) struct Stage {
    pub(crate) server: Server,
    pub(crate) dir: PathBuf,
}

impl Stage {
    pub(crate) async fn start(options: Options) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let server = Server::start(options).await.unwrap();
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("work-apns-{}-{count}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("ca.pem"), server.authority.certificate()).unwrap();
        std::fs::write(dir.join("key.p8"), &server.keys().private).unwrap();
        Self { server, dir }
    }

    pub(crate) fn settings(&self, more: &str) -> Settings {
        let (url, dir) = (self.server.url(), self.dir.display());
        let text =
            format!("server = '{url}'\nca = '{dir}/ca.pem'\ntopic = 'com.example.app'\n{more}");
        toml::from_str(&text).unwrap()
    }

    pub(crate) fn token_settings(&self, more: &str) -> Settings {
        let dir = self.dir.display();
        self.settings(&format!(
            "key = 'file:{dir}/key.p8'\nkey_id = '{KEY_ID}'\nteam_id = '{ISSUER}'\n{more}"
        ))
    }

    pub(crate) fn target(&self, more: &str) -> Arc<Apns> {
        Arc::new(Apns::new(&self.token_settings(more)).unwrap())
    }

    /// A target whose clock is ahead by so many minutes as the counter says.
    pub(crate) fn target_with_clock(&self, minutes: &Arc<AtomicU64>) -> Arc<Apns> {
        let minutes = Arc::clone(minutes);
        let clock = move || {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            now + Duration::from_secs(60 * minutes.load(Ordering::Relaxed))
        };
        Arc::new(Apns::with_clock(&self.token_settings(""), Box::new(clock)).unwrap())
    }

    pub(crate) fn set_server_clock(&self, minutes: u64) {
        self.server.set_clock_ahead(Duration::from_secs(60 * minutes));
    }

    pub(crate) fn count(&self, which: fn(&Counts) -> &AtomicU64) -> u64 {
        which(self.server.counts()).load(Ordering::Relaxed)
    }

    /// The pushes to device tokens that begin so.
    pub(crate) fn received(&self, beginning: &str) -> Vec<Received> {
        let all = self.server.received().into_iter();
        all.filter(|push| push.device_token.starts_with(beginning)).collect()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// A device token that begins so.
pub(crate) fn device(beginning: &str, number: u64) -> String {
    let digits = 64 - beginning.len();
    format!("{beginning}{number:0digits$x}")
}

pub(crate) fn job(id: &str, device: &str) -> Message {
    let body = format!(r#"{{"token":"{device}","payload":{{"aps":{{"alert":"{id}"}}}}}}"#);
    Message { id: id.to_owned(), body: Bytes::from(body), attempt: 1, ..Message::default() }
}

pub(crate) async fn run(target: &Arc<Apns>, job: Message) -> Outcome {
    let run = Run { jobs: vec![job], deadline: Instant::now() + LONG };
    let outcomes = tokio::time::timeout(LONG, Arc::clone(target).run(run)).await;
    outcomes.expect("every push ends").remove(0)
}

pub(crate) async fn push(target: &Arc<Apns>, device: &str) -> Outcome {
    run(target, job("job", device)).await
}

/// Pushes at the same time.
pub(crate) async fn push_all(target: &Arc<Apns>, jobs: Vec<Message>) -> Vec<Outcome> {
    let mut tasks = tokio::task::JoinSet::new();
    for job in jobs {
        let target = Arc::clone(target);
        tasks.spawn(async move { run(&target, job).await });
    }
    tasks.join_all().await
}

pub(crate) fn jobs(beginning: &str, count: u64) -> Vec<Message> {
    (0..count).map(|i| job(&format!("{beginning}-{i}"), &device(beginning, i))).collect()
}

/// Waits until something is so.
pub(crate) async fn until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + LONG;
    while !is_so() {
        assert!(Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
