//! Changes of the catalog.

use machine::{CatalogCommand, CatalogReply, Refusal};

use super::api::Api;
use crate::limits::CHANGE_WAIT;
use crate::reply::Problem;

/// Changes the catalog.
pub(super) async fn change(api: &Api, command: CatalogCommand) -> Result<CatalogReply, Problem> {
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
    change(api, CatalogCommand::PutUser { name, password_hash, tags }).await.map(drop)
}
