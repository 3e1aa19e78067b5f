//! Definitions are brought in: vhosts, users and permissions first, then what is in the vhosts.
//!
//! What was brought in before something is refused stays. The same definitions can be brought in again.

use broker::operator;
use machine::CatalogCommand;

use super::api::Api;
use super::change::{change, put_user};
use crate::import::Import;
use crate::reply::{Problem, Reply};

pub(super) async fn import(api: &Api, import: Import) -> Result<Reply, Problem> {
    let Import { vhosts, users, plain_users, permissions, policies, exchanges, queues, bindings } =
        import;
    for command in vhosts.into_iter().chain(users) {
        change(api, command).await?;
    }
    for (name, password, tags) in plain_users {
        put_user(api, name, password, tags).await?;
    }
    for command in permissions.into_iter().chain(policies) {
        change(api, command).await.map_err(named)?;
    }
    let by = operator::owner(api.0.cluster.node());
    for exchange in exchanges {
        let asked = exchange.command(&api.0.cluster.catalog(), by);
        make(api, asked).await?;
    }
    for queue in queues {
        let asked = queue.command(&api.0.cluster.catalog(), by);
        make(api, asked).await?;
    }
    for binding in bindings {
        let asked = binding.command(&api.0.cluster.catalog(), by);
        make(api, asked).await?;
    }
    Ok(Reply::done())
}

async fn make(api: &Api, asked: Result<Option<CatalogCommand>, String>) -> Result<(), Problem> {
    match asked.map_err(Problem::Bad)? {
        Some(command) => change(api, command).await.map(drop).map_err(named),
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
