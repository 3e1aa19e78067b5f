//! Makes the user that a node or cluster begins with. What is to be made is decided by `first_user`.

use std::time::Duration;

use cluster::{Answer, ClusterHandle, Request, Ticket};
use machine::{CatalogReply, password};
use rustix::rand::{GetRandomFlags, getrandom};

pub use crate::first_user::FirstUser;
use crate::first_user::{Plan, commands, has_known_guest, plan};

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
    let mut salt = [0; 16];
    let drawn = getrandom(&mut salt, GetRandomFlags::empty());
    if drawn != Ok(salt.len()) {
        return Err(
            "the operating system gave no chance for the password of default_user".to_owned()
        );
    }
    let commands = commands(&wanted.name, password::hash(&wanted.password, salt));
    let done = tokio::time::timeout(CATALOG_WAIT, apply(cluster, commands)).await;
    done.map_err(|_| {
        "default_user could not be made: no majority of the nodes answers".to_owned()
    })??;
    tracing::info!(user = wanted.name, "first start: created default_user as an administrator");
    Ok(())
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
