//! Makes the user that a node or cluster begins with. What is to be made is decided by `first_user`.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use cluster::{Answer, ClusterHandle, Request, Ticket};
use machine::CatalogReply;
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
    apply_in_time(cluster, commands(&wanted.name, password::hash(&wanted.password, chance()?)))
        .await?;
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
    apply_in_time(cluster, new_user(&drawn.name, password::hash(&drawn.password, chance()?)))
        .await?;
    Ok(Some(drawn))
}

fn chance() -> Result<[u8; 16], String> {
    let mut bytes = [0; 16];
    match getrandom(&mut bytes, GetRandomFlags::empty()) == Ok(bytes.len()) {
        true => Ok(bytes),
        false => {
            Err("the operating system gave no chance for the password of the first user".to_owned())
        }
    }
}

async fn apply_in_time(
    cluster: &ClusterHandle,
    commands: Vec<machine::CatalogCommand>,
) -> Result<(), String> {
    let done = tokio::time::timeout(CATALOG_WAIT, apply(cluster, commands)).await;
    done.map_err(|_| "default_user could not be made: no majority of the nodes answers".to_owned())?
}

async fn apply(
    cluster: &ClusterHandle,
    commands: Vec<machine::CatalogCommand>,
) -> Result<(), String> {
    let (session, mut answers) = cluster.open_session();
    let mut answered = Vec::new();
    for (number, command) in (1..).zip(commands) {
        let mut requests = vec![Request::Catalog { ticket: Ticket(number), command }];
        let stopping = || "default_user could not be made: the node stops".to_owned();
        if !cluster.submit(session, &mut requests).await {
            return Err(stopping());
        }
        let reply = loop {
            let replies = answered.drain(..).map(|answer| match_reply(answer, Ticket(number)));
            if let Some(reply) = replies.flatten().last() {
                break reply;
            }
            if !answers.recv(&mut answered).await {
                return Err(stopping());
            }
        };
        if let CatalogReply::Refused(refusal) = reply {
            return Err(format!("default_user could not be made: {refusal:?}"));
        }
    }
    Ok(())
}

fn match_reply(answer: Answer, asked: Ticket) -> Option<CatalogReply> {
    if let Answer::Catalog { ticket, reply } = answer {
        return (ticket == asked).then_some(reply);
    }
    None
}

/// Whether `guest` is there with the password that everybody knows: what a first try would use.
pub fn is_guest_known(cluster: &ClusterHandle) -> bool {
    has_known_guest(&cluster.catalog(), password::verify)
}

/// Whether there is no user but that `guest`.
pub fn is_guest_alone(cluster: &ClusterHandle) -> bool {
    first_user::is_guest_alone(&cluster.catalog(), password::verify)
}
