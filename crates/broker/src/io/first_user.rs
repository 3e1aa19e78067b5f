//! Makes the user that a node or cluster begins with. What is to be made is decided by `first_user`.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use cluster::ClusterHandle;
use machine::{CatalogCommand, CatalogReply};
use rustix::rand::{GetRandomFlags, getrandom};

pub use crate::first_user::FirstUser;
use crate::first_user::{self, Plan, commands, has_known_guest, new_user, plan};
use crate::password;

/// Who is made where nobody was chosen.
const DRAWN_NAME: &str = "admin";

/// How long the catalog may take: longer than an election.
const CATALOG_WAIT: Duration = Duration::from_secs(60);

/// Makes the user if this is a beginning. To be called when the node can serve, before clients come.
///
/// # Errors
/// A sentence that says why the user could not be made.
pub async fn make(cluster: &ClusterHandle, wanted: &FirstUser) -> Result<(), String> {
    let planned = plan(&cluster.catalog(), wanted, password::verify);
    match planned {
        Plan::Made => return Ok(()),
        Plan::TooLate => {
            tracing::warn!(
                user = wanted.name,
                "default_user and default_pass have no effect: this node has users already, and keeps them. They count \
                 at the first start only"
            );
            return Ok(());
        }
        Plan::Make => {}
    }
    apply(cluster, commands(&wanted.name, password::hash(&wanted.password, chance()?))).await?;
    tracing::info!(user = wanted.name, "first start: created default_user as an administrator");
    Ok(())
}

/// Makes an administrator beside `guest` whose password nobody has chosen, if there is no other user yet. Whoever calls
/// this tells the password: nothing else ever does.
///
/// # Errors
/// A sentence that says why the user could not be made.
pub async fn draw(cluster: &ClusterHandle) -> Result<Option<FirstUser>, String> {
    if !is_guest_alone(cluster) {
        return Ok(None);
    }
    let drawn =
        FirstUser { name: DRAWN_NAME.to_owned(), password: URL_SAFE_NO_PAD.encode(chance()?) };
    apply(cluster, new_user(&drawn.name, password::hash(&drawn.password, chance()?))).await?;
    Ok(Some(drawn))
}

/// Chance for the salt of a password.
///
/// # Errors
/// The operating system gives none.
pub fn chance() -> Result<[u8; 16], String> {
    let mut bytes = [0; 16];
    match getrandom(&mut bytes, GetRandomFlags::empty()) == Ok(bytes.len()) {
        true => Ok(bytes),
        false => Err("the operating system gave no random bytes to hash a password".to_owned()),
    }
}

async fn apply(cluster: &ClusterHandle, commands: Vec<CatalogCommand>) -> Result<(), String> {
    for command in commands {
        let failed = |why: String| format!("default_user could not be made: {why}");
        let reply = cluster.change(command, CATALOG_WAIT).await;
        if let CatalogReply::Refused(why) = reply.map_err(|why| failed(why.to_string()))? {
            return Err(failed(why.to_string()));
        }
    }
    Ok(())
}

/// Whether `guest` is there with the password that everybody knows: what a first try would use.
pub fn is_guest_known(cluster: &ClusterHandle) -> bool {
    has_known_guest(&cluster.catalog(), password::verify)
}

/// Whether there is no user but that `guest`.
pub fn is_guest_alone(cluster: &ClusterHandle) -> bool {
    first_user::is_guest_alone(&cluster.catalog(), password::verify)
}
