//! `millrace work replay` and `millrace work send`: jobs by hand.

use std::io::Read as _;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::json;
use worker::Header;
use worker::io::replay::{Replay, Replayed, Send};

use super::{fail, say, wait};

/// Put dead jobs back into their queue
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  millrace work replay --queue jobs --dry-run\n  \
                  millrace work replay --queue jobs --cause exhausted --limit 100 --rate 10\n\n\
                  A dead job leaves the dead queue only after the broker has confirmed its copy: an interrupted replay may \
                  at worst repeat a job.")]
pub(super) struct ReplayArgs {
    /// The broker: amqp://user:password@host:port/vhost
    #[arg(
        long,
        env = "AMQP_URL",
        value_name = "URL",
        hide_env_values = true,
        default_value = "amqp://guest:guest@localhost:5672/%2F"
    )]
    url: String,
    /// Queue whose jobs are dead; they go back into this queue
    #[arg(long, value_name = "NAME")]
    queue: String,
    /// Queue that holds the dead jobs [default: QUEUE.dead]
    #[arg(long, value_name = "NAME")]
    dead_queue: Option<String>,
    /// Replay only jobs with this cause: rejected, exhausted, token_dead, malformed
    #[arg(long, value_name = "CAUSE")]
    cause: Option<String>,
    /// Replay only jobs of this type
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,
    /// Replay only the job with this id
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// Replay at most this many jobs
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Replay at most this many jobs per second
    #[arg(long, value_name = "N")]
    rate: Option<f64>,
    /// Show the jobs and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Print one line of JSON
    #[arg(long)]
    json: bool,
}

/// Replays and tells.
pub(super) fn replay(args: ReplayArgs) -> ExitCode {
    let what = Replay {
        queue: args.queue,
        dead_queue: args.dead_queue,
        cause: args.cause,
        kind: args.kind,
        id: args.id,
        limit: args.limit,
        rate: args.rate,
        is_dry_run: args.dry_run,
    };
    let replayed = wait(async {
        worker::io::replay::replay(&args.url, &what).await.map_err(|error| error.to_string())
    });
    match replayed {
        Ok(replayed) if args.json => say(&json(&replayed)),
        Ok(replayed) => {
            for job in &replayed.jobs {
                let kind = if job.kind.is_empty() { "-" } else { &job.kind };
                say(&format!(
                    "{} {kind} attempt {} {}: {}",
                    job.id, job.attempt, job.cause, job.why
                ));
            }
            let verb = if what.is_dry_run { "would go back" } else { "went back" };
            let Replayed { seen, replayed, .. } = replayed;
            say(&format!("{replayed} of {seen} dead jobs {verb} to {}", what.queue));
        }
        Err(why) => return fail(&why),
    }
    ExitCode::SUCCESS
}

fn json(replayed: &Replayed) -> String {
    let jobs: Vec<serde_json::Value> = replayed
        .jobs
        .iter()
        .map(|job| {
            json!({ "id": job.id, "type": job.kind, "cause": job.cause, "why": job.why,
                    "attempt": job.attempt, "died_ms": job.died_ms })
        })
        .collect();
    json!({ "seen": replayed.seen, "replayed": replayed.replayed, "jobs": jobs }).to_string()
}

/// Publish one job
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  millrace work send --queue jobs --type welcome --body '{\"email\":\"ann@example.com\"}'\n  \
                  millrace work send --queue jobs --type report --body-file report.json --delay 10m --unique daily --unique-for 1h\n\n\
                  The command waits until the broker has confirmed the job, then prints the job's id."
)]
pub(super) struct SendArgs {
    /// The broker: amqp://user:password@host:port/vhost
    #[arg(
        long,
        env = "AMQP_URL",
        value_name = "URL",
        hide_env_values = true,
        default_value = "amqp://guest:guest@localhost:5672/%2F"
    )]
    url: String,
    /// Queue that gets the job
    #[arg(long, value_name = "NAME")]
    queue: String,
    /// Type of the job; it selects the handler
    #[arg(long = "type", value_name = "TYPE", default_value = "")]
    kind: String,
    /// Body of the job
    #[arg(long, value_name = "TEXT", conflicts_with = "body_file")]
    body: Option<String>,
    /// Read the body from this file; - is standard input
    #[arg(long, value_name = "FILE")]
    body_file: Option<String>,
    /// Content type of the body [default: application/json if the body is JSON]
    #[arg(long, value_name = "TYPE")]
    content_type: Option<String>,
    /// Id of the job, which is its idempotency key [default: a new one]
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// Key for order and fairness
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Delay the job by this time: 250ms, 5s, 10m, 12h, 7d
    #[arg(long, value_name = "TIME", value_parser = service::duration)]
    delay: Option<Duration>,
    /// Maximum time of an attempt
    #[arg(long, value_name = "TIME", value_parser = service::duration)]
    timeout: Option<Duration>,
    /// Maximum number of attempts before the job is dead
    #[arg(long, value_name = "N")]
    attempts_max: Option<u32>,
    /// Jobs to publish after success, as JSON (see docs/work.md)
    #[arg(long, value_name = "JSON")]
    then: Option<String>,
    /// Drop the job if the queue took a job with this key within --unique-for
    #[arg(long, value_name = "KEY")]
    unique: Option<String>,
    /// How long the key stays unique
    #[arg(long, value_name = "TIME", value_parser = service::duration, requires = "unique")]
    unique_for: Option<Duration>,
    /// Add a header, NAME=VALUE (repeatable)
    #[arg(long = "header", value_name = "NAME=VALUE", value_parser = header)]
    headers: Vec<Header>,
}

fn header(text: &str) -> Result<Header, String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE")?;
    Ok(Header { name: name.to_owned(), value: value.to_owned() })
}

/// Sends and tells.
pub(super) fn send(args: SendArgs) -> ExitCode {
    let body = match body(args.body, args.body_file.as_deref()) {
        Ok(body) => body,
        Err(why) => return fail(&why),
    };
    let job = Send {
        queue: args.queue,
        kind: args.kind,
        body,
        content_type: args.content_type,
        id: args.id,
        key: args.key,
        delay: args.delay,
        timeout: args.timeout,
        attempts_max: args.attempts_max,
        then: args.then,
        unique: args.unique.map(|key| (key, args.unique_for)),
        headers: args.headers,
    };
    let sent = wait(async {
        worker::io::replay::send(&args.url, &job).await.map_err(|error| error.to_string())
    });
    match sent {
        Ok(id) => {
            say(&id);
            ExitCode::SUCCESS
        }
        Err(why) => fail(&why),
    }
}

fn body(text: Option<String>, file: Option<&str>) -> Result<Vec<u8>, String> {
    match (text, file) {
        (Some(text), _) => Ok(text.into_bytes()),
        (None, None) => Ok(Vec::new()),
        (None, Some("-")) => {
            let mut body = Vec::new();
            let most = worker::limits::BODY_BYTES_MAX as u64 + 1;
            let read = std::io::stdin().lock().take(most).read_to_end(&mut body);
            read.map(|_| body).map_err(|error| format!("standard input: {error}"))
        }
        #[expect(clippy::disallowed_methods, reason = "a file that the user names")]
        (None, Some(path)) => std::fs::read(path).map_err(|error| format!("{path}: {error}")),
    }
}
