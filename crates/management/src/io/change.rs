//! Changes of the catalog.

use machine::{Actor, CatalogCommand, CatalogReply, Event, Refusal, Version};

use super::api::Api;
use crate::audit;
use crate::limits::CHANGE_WAIT;
use crate::reply::Problem;

/// Changes the catalog. It remembers who did, if all nodes know how.
pub(super) async fn change(
    api: &Api,
    by: &Actor,
    command: CatalogCommand,
) -> Result<CatalogReply, Problem> {
    let command = if remembers(api) { command.by(by.clone()) } else { command };
    changed(api, command).await
}

/// Has the catalog remember what was done. It is done, whether that succeeds or not.
pub(super) async fn note(api: &Api, by: &Actor, event: Event) {
    if !remembers(api) {
        return;
    }
    let (name, vhost, object) = (event.name.clone(), event.vhost.clone(), event.object.clone());
    let note = CatalogCommand::Note { by: by.clone(), event: Box::new(event) };
    if let Err(why) = changed(api, note).await {
        let user = &by.user;
        tracing::warn!(
            user,
            event = name,
            vhost,
            object,
            ?why,
            "audit trail: what this user has done over HTTP could not be added. It is in this line alone"
        );
    }
}

/// Has the catalog remember a deployment.
pub(super) async fn mark(api: &Api, by: &Actor, text: &str) -> Result<(), Problem> {
    let event = Box::new(audit::of_mark(text));
    changed(api, CatalogCommand::Note { by: by.clone(), event }).await.map(drop)
}

fn remembers(api: &Api) -> bool {
    api.0.cluster.catalog().agreed() >= Version::AUDITED
}

/// The same without a word of who it was.
pub(super) async fn changed(api: &Api, command: CatalogCommand) -> Result<CatalogReply, Problem> {
    let reply = api.0.cluster.change(command, CHANGE_WAIT).await;
    let reply = reply.map_err(|why| Problem::Unavailable(why.to_string()))?;
    match reply {
        CatalogReply::Refused(Refusal::NotFound { .. }) => Err(Problem::NotFound),
        CatalogReply::Refused(refusal) => Err(Problem::Bad(refusal.to_string())),
        CatalogReply::Done
        | CatalogReply::ExchangeDeclared { .. }
        | CatalogReply::QueueDeclared { .. }
        | CatalogReply::QueueDeleted { .. } => Ok(reply),
    }
}

pub(super) async fn put_user(
    api: &Api,
    by: &Actor,
    name: String,
    password: String,
    tags: Vec<String>,
) -> Result<(), Problem> {
    if password.len() > broker::limits::PASSWORD_BYTES_MAX {
        let max = broker::limits::PASSWORD_BYTES_MAX;
        return Err(Problem::bad(format!("a password has at most {max} bytes")));
    }
    let _turn = api.0.hashes.acquire().await;
    let salt = broker::io::first_user::chance().map_err(Problem::Unavailable)?;
    let hashed = tokio::task::spawn_blocking(move || broker::password::hash(&password, salt));
    let password_hash = hashed.await.map_err(|error| Problem::Unavailable(error.to_string()))?;
    change(api, by, CatalogCommand::PutUser { name, password_hash, tags }).await.map(drop)
}
