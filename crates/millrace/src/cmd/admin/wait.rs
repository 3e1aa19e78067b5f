//! `millrace wait`: until a node is ready.
#![allow(clippy::disallowed_methods, reason = "it waits")]

use std::time::{Duration, Instant};

use serde_json::json;

use super::check;
use super::failure::{Failure, remark};
use super::login;
use super::session::{Session, say, say_json};

pub(crate) const EXAMPLES: &str = "\
  millrace serve --http 127.0.0.1:15672 &
  millrace wait --ready --timeout 2m && millrace definitions import broker.json
Until the time is over, everything is tried again: no answer, a login that the node does not know yet. Exit code 0: the
node is ready. Otherwise that of the last try: 1 not ready, 3 no answer, 4 login refused.";

/// Between two looks: at first, and at most.
const LOOK_FIRST: Duration = Duration::from_millis(100);
const LOOK_LAST: Duration = Duration::from_secs(1);

/// What `millrace wait` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) login: login::Options,
    /// Wait until the node answers, knows the login, and takes AMQP clients (there is nothing else to wait for)
    #[arg(long)]
    ready: bool,
    /// Give up after this time
    #[arg(long, value_name = "TIME", value_parser = service::duration, default_value = "60s")]
    timeout: Duration,
}

pub(crate) async fn run(session: &mut Session, args: Args) -> Result<(), Failure> {
    let begun = Instant::now();
    let mut pause = LOOK_FIRST;
    let mut before = None;
    loop {
        let left = args.timeout.saturating_sub(begun.elapsed());
        let looked = tokio::time::timeout(left, check::ready(session)).await;
        let failure = match looked {
            Ok(Ok(said)) => {
                let waited_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
                return match session.is_json {
                    true => say_json(&json!({ "ready": true, "waited_ms": waited_ms })),
                    false => say(&format!("ready: {said}")),
                };
            }
            Ok(Err(failure @ (Failure::Usage(_) | Failure::Told))) => return Err(failure),
            Ok(Err(failure)) => failure,
            Err(_) => before.take().unwrap_or(Failure::Away("no answer".to_owned())),
        };
        if begun.elapsed() >= args.timeout {
            return Err(failure);
        }
        if before.as_ref() != Some(&failure) {
            remark(&format!("waiting: {failure}"));
        }
        before = Some(failure);
        tokio::time::sleep(pause.min(args.timeout.saturating_sub(begun.elapsed()))).await;
        pause = (pause * 2).min(LOOK_LAST);
    }
}
