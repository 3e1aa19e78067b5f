//! Definitions are brought in: vhosts, users and permissions first, then what is in the vhosts.
//!
//! What was brought in before something is refused stays. The same definitions can be brought in again.

use broker::operator::{self, Asked};
use machine::Actor;

use super::api::Api;
use super::change::{change, changed, note, put_user};
use crate::audit;
use crate::import::Import;
use crate::reply::{Problem, Reply};

/// What becomes of queues and exchanges that are there and differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Differing {
    /// They are refused, as they would be to a client.
    Refused,
    /// They stay as they are, and the log says so: clients may have changed them since the last start.
    Stay,
}

pub(super) async fn import(
    api: &Api,
    who: &Actor,
    import: Import,
    differing: Differing,
) -> Result<Reply, Problem> {
    let event = audit::of_import(&import);
    let Import {
        vhosts,
        users,
        plain_users,
        permissions,
        policies,
        exchanges,
        mut queues,
        bindings,
    } = import;
    // A subscription reads a stream that has to be there, whatever their names are.
    queues.sort_by_key(|queue| queue.arguments.find("x-stream").is_some());
    for command in vhosts.into_iter().chain(users) {
        change(api, who, command).await?;
    }
    for (name, password, tags) in plain_users {
        put_user(api, who, name, password, tags).await?;
    }
    for command in permissions.into_iter().chain(policies) {
        change(api, who, command).await.map_err(named)?;
    }
    let by = operator::owner(api.0.cluster.node());
    for exchange in exchanges {
        let asked = {
            let catalog = api.0.cluster.catalog();
            let stays = differing == Differing::Stay
                && catalog.exchange(&exchange.vhost, &exchange.name).is_some();
            let (vhost, name) = (exchange.vhost.clone(), exchange.name.clone());
            kept("exchange", &vhost, &name, stays, exchange.command(&catalog, by))
        };
        make(api, asked).await?;
    }
    for queue in queues {
        let asked = {
            let catalog = api.0.cluster.catalog();
            let stays =
                differing == Differing::Stay && catalog.queue(&queue.vhost, &queue.name).is_some();
            let (vhost, name) = (queue.vhost.clone(), queue.name.clone());
            kept("queue", &vhost, &name, stays, queue.command(&catalog, by))
        };
        make(api, asked).await?;
    }
    for binding in bindings {
        let asked = binding.command(&api.0.cluster.catalog(), by);
        make(api, asked).await?;
    }
    note(api, who, event).await;
    Ok(Reply::done())
}

/// One that differs and stays is nothing to be done.
fn kept(kind: &str, vhost: &str, name: &str, stays: bool, asked: Asked) -> Asked {
    match asked {
        Err(why) if stays => {
            tracing::warn!(
                vhost,
                name,
                "definitions: this {kind} is there with other properties and stays as it is: {why}"
            );
            Ok(None)
        }
        other => other,
    }
}

async fn make(api: &Api, asked: Asked) -> Result<(), Problem> {
    match asked.map_err(Problem::Bad)? {
        // One record speaks for all of them.
        Some(command) => changed(api, command).await.map(drop).map_err(named),
        None => Ok(()),
    }
}

/// In a list of things it says more that one of them is missing than that the path is.
fn named(problem: Problem) -> Problem {
    match problem {
        Problem::NotFound => {
            Problem::bad("the definitions name a vhost, user, exchange or queue that is not there")
        }
        other => other,
    }
}
