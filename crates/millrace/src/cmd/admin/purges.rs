//! `millrace purge`, `millrace unpurge`.

use serde_json::{Value, json};

use super::api::Ask;
use super::chosen::{OfQueues, Which, deed, name_of, shown_count, target, targets};
use super::deed::Target;
use super::failure::Failure;
use super::login;
use super::path::Path;
use super::resource::Vhost;
use super::session::{Session, say, say_json};

/// Queues that are emptied.
#[derive(clap::Args)]
pub(crate) struct Purge {
    #[command(flatten)]
    which: Which,
    /// So many seconds `millrace unpurge` can bring the messages back, at most 600
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=600))]
    undo_for: Option<u32>,
}

/// What `millrace purge` takes.
#[derive(clap::Args)]
pub(crate) struct PurgeArgs {
    #[command(flatten)]
    pub(crate) login: login::Options,
    #[command(flatten)]
    pub(crate) vhost: Vhost,
    #[command(flatten)]
    pub(crate) purge: Purge,
}

pub(crate) async fn purge(session: &mut Session, vhost: &str, what: Purge) -> Result<(), Failure> {
    let Purge { which, undo_for } = what;
    if undo_for.is_some() {
        needs_undo(session).await?;
    }
    let back = undo_for.map(|seconds| format!(". They can be brought back for {seconds} s"));
    let back = back.unwrap_or_default();
    let target = |queue: &Value| {
        let loss = format!(
            "{} messages that are ready; {} that consumers hold stay{back}",
            shown_count(queue, "messages_ready"),
            shown_count(queue, "messages_unacknowledged")
        );
        let path = Path::of(&["queues", vhost, name_of(queue), "contents"]);
        let path = match undo_for {
            Some(seconds) => path.with("undo_ms", &(u64::from(seconds) * 1000).to_string()),
            None => path,
        };
        target(vhost, queue, loss, |label| Ask::delete(path, label))
    };
    let deed = deed("purge", ("purge", "purged"), &which);
    let targets = targets(session, vhost, &which, target).await?;
    // Behind a load balancer another node may answer than the one that was asked whether it can.
    let judge = |target: &Target, answer: &Value| match undo_for {
        Some(_) if answer["messages"].as_u64().is_none() => Err(Failure::Refused(format!(
            "{} is purged for good: what has answered knows no purge that can be undone",
            target.label
        ))),
        Some(_) | None => Ok(()),
    };
    match deed.act(session, &targets, which.care, judge).await? {
        Some(_) => deed.tell(session, &targets),
        None => Ok(()),
    }
}

/// RabbitMQ, and a Millrace that knows no such purges, would take one for a purge for good.
async fn needs_undo(session: &mut Session) -> Result<(), Failure> {
    const PATH: &str = "/millrace/queues/{vhost}/{queue}/unpurge";
    let ask = Ask::get(Path::of(&["millrace", "openapi.json"]), "what the node can do");
    let answer = session.api.sound(&ask).await?;
    if answer.status == http::StatusCode::UNAUTHORIZED {
        return session.api.judged(&ask, answer).map(drop);
    }
    let is_known = answer.status.is_success() && answer.body["paths"].get(PATH).is_some();
    match is_known {
        true => Ok(()),
        false => Err(Failure::Refused(format!(
            "{} knows no purge that can be undone, and nothing was purged: leave --undo-for out to purge for good",
            session.api.login().address.place()
        ))),
    }
}

pub(crate) async fn unpurge(session: &mut Session, args: OfQueues) -> Result<(), Failure> {
    let OfQueues { vhost, which, .. } = args;
    let vhost = vhost.name();
    let target = |queue: &Value| {
        // A filter's list does not say how many there are.
        let withheld = queue["millrace"]["withheld"].as_u64();
        let gain = withheld.map(|count| format!("{count} messages come back"));
        let gain = gain.unwrap_or_else(|| "what its last purge can bring back".to_owned());
        let path = Path::of(&["millrace", "queues", vhost, name_of(queue), "unpurge"]);
        target(vhost, queue, gain, |label| Ask::post(path, json!({}), label))
    };
    let words = ("bring back messages of", "brought back messages of");
    let deed = deed("unpurge", words, &which);
    let mut targets = targets(session, vhost, &which, target).await?;
    let answers = deed.act(session, &targets, which.care, |_, _| Ok(())).await?;
    let Some(answers) = answers else { return Ok(()) };
    let mut back = 0;
    for (target, answer) in targets.iter_mut().zip(answers) {
        let count = answer["messages"].as_u64().unwrap_or_default();
        target.facts["brought_back"] = count.into();
        back += count;
    }
    let named = deed.named(&targets);
    let nothing = format!("nothing was left to bring back of {named}");
    match (session.is_json, back) {
        (true, 0) => say_json(&deed.json(&targets, false)).and(Err(Failure::Told)),
        (true, _) => say_json(&deed.json(&targets, false)),
        (false, 0) => Err(Failure::Refused(nothing)),
        (false, _) => say(&format!("brought back {back} messages of {named}")),
    }
}
