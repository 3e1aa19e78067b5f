//! `millrace pause`, `millrace resume`.

use serde_json::{Value, json};

use super::api::Ask;
use super::chosen::{OfQueues, deed, name_of, shown_count, targets};
use super::deed::{Deed, Target, in_vhost};
use super::failure::Failure;
use super::path::Path;
use super::session::Session;

pub(crate) const EXAMPLES: &str = "\
Give consumers nothing while what they need is repaired:
  millrace pause orders -p shop
Which queues are paused, by whom and for how long:
  millrace queues --columns vhost,name,paused,paused_by,paused_at,messages_ready
Go on:
  millrace resume orders -p shop
All queues whose name begins with orders.:
  millrace pause --matching '^orders\\.' -p shop --dry-run
  millrace pause --matching '^orders\\.' -p shop --yes";

pub(crate) async fn pause(session: &mut Session, args: OfQueues) -> Result<(), Failure> {
    let deed = deed("pause", ("pause", "paused"), &args.which);
    run(session, args, deed, |path, label| Ask::put(path, json!({}), label)).await
}

pub(crate) async fn resume(session: &mut Session, args: OfQueues) -> Result<(), Failure> {
    let deed = deed("resume", ("resume", "resumed"), &args.which);
    run(session, args, deed, |path, label| Ask::delete(path, label)).await
}

async fn run(
    session: &mut Session,
    args: OfQueues,
    deed: Deed,
    ask: fn(Path, &str) -> Ask,
) -> Result<(), Failure> {
    let vhost = args.vhost.name();
    let target = |queue: &Value| {
        let name = name_of(queue);
        let label = in_vhost("queue", name, vhost);
        let path = Path::of(&["millrace", "queues", vhost, name, "pause"]);
        let (ready, consumers) =
            (shown_count(queue, "messages_ready"), shown_count(queue, "consumers"));
        let was_paused = queue["paused"] == json!(true);
        let before = if was_paused { ", paused already" } else { "" };
        let loss = format!("{ready} messages are ready, {consumers} consumers{before}");
        let facts = json!({
            "vhost": vhost,
            "name": name,
            "was_paused": was_paused,
            "messages_ready": queue["messages_ready"],
            "consumers": queue["consumers"],
        });
        Target { ask: ask(path, &label), label, loss, facts }
    };
    let targets = targets(session, vhost, &args.which, target).await?;
    deed.run(session, targets, args.which.care).await
}
