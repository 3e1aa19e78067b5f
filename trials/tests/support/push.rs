//! What the tests of push targets share: settings, jobs and runs.
#![allow(dead_code, reason = "each test file uses some of it")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use trials::providers::rest::Reply;
use worker::io::target::{Run, Target};
use worker::{Message, Outcome, Publish};

/// Settings of a target, with feedback that waits shortly.
pub(crate) fn settings<T: DeserializeOwned>(text: &str) -> T {
    let text = format!(
        "{text}\n[feedback]\nexchange = 'push'\nrouting_key = 'tokens.dead'\nwait = '20ms'\n"
    );
    toml::from_str(&text).expect("settings are valid")
}

/// A job to these tokens.
pub(crate) fn job(id: &str, tokens: &[&str], message: &Value) -> Message {
    let body = json!({ "tokens": tokens, "message": message }).to_string();
    Message { id: id.to_owned(), body: body.into(), attempt: 1, ..Message::default() }
}

/// Executes jobs together.
pub(crate) async fn run<T: Target>(target: &Arc<T>, jobs: Vec<Message>) -> Vec<Outcome> {
    let deadline = Instant::now() + Duration::from_secs(60);
    let count = jobs.len();
    let outcomes = target.clone().run(Run { jobs, deadline }).await;
    assert_eq!(outcomes.len(), count, "each job has an outcome");
    let text = format!("{outcomes:?}");
    assert!(!text.contains("canary"), "an outcome shows a secret: {text}");
    outcomes
}

/// Executes one job.
pub(crate) async fn one<T: Target>(target: &Arc<T>, job: Message) -> Outcome {
    run(target, vec![job]).await.pop().expect("one outcome")
}

/// The tokens that are left, where a part is done.
pub(crate) fn rest(outcome: &Outcome) -> Vec<String> {
    let Outcome::Retry { rest: Some(rest), .. } = outcome else {
        panic!("a part should be left: {outcome:?}");
    };
    let body: Value = serde_json::from_slice(rest).expect("the rest is JSON");
    let tokens = body["tokens"].as_array().expect("it has tokens");
    tokens.iter().map(|token| token.as_str().expect("a text").to_owned()).collect()
}

/// The tokens that were told dead, and why.
pub(crate) fn told(outcome: &Outcome) -> Vec<(String, String)> {
    let publishes: &[Publish] = match outcome {
        Outcome::Done { publishes }
        | Outcome::Retry { publishes, .. }
        | Outcome::TokenDead { publishes, .. } => publishes,
        Outcome::Throttle { .. } | Outcome::Reject { .. } | Outcome::Config { .. } => &[],
    };
    let one = |publish: &Publish| {
        assert_eq!(
            (publish.exchange.as_str(), publish.routing_key.as_str()),
            ("push", "tokens.dead")
        );
        assert_eq!(publish.message.kind, "push.token_dead");
        let body: Value = serde_json::from_slice(&publish.message.body).expect("it is JSON");
        let text = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
        (text("token"), text("reason"))
    };
    publishes.iter().map(one).collect()
}

/// An answer that is no JSON.
pub(crate) fn html(status: u16) -> Reply {
    Reply::text(status, "<html>gateway</html>")
}
