//! Definitions that a node brings in at its start.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use machine::{Actor, Catalog, CatalogCommand, Version};
use serde_json::Value;

use super::api::Api;
use super::change::change;
use super::import::{Differing, import};
use crate::asked::{Asked, Body};
use crate::limits::DEFINITIONS_BYTES_MAX;
use crate::reply::Problem;
use crate::routes::definitions::read;

/// How long a new cluster may take to agree on the newest version: only then is everything that definitions may have
/// known to it.
const AGREEING: Duration = Duration::from_secs(5);

/// How often is looked whether it has.
const GLANCE: Duration = Duration::from_millis(50);

/// How long a node waits that found no majority for a change, before it asks again.
const AGAIN: Duration = Duration::from_secs(1);

/// A file of definitions that can be brought in, as far as it alone says.
#[derive(Clone, Debug)]
pub struct BootDefinitions {
    path: PathBuf,
    body: Body,
    users: Vec<String>,
}

impl BootDefinitions {
    /// Reads and checks a file: RabbitMQ's `definitions.json`, or one of `GET /api/definitions`.
    ///
    /// # Errors
    /// It cannot be read, is too long, is no JSON, or has what cannot be brought in: in words.
    pub fn load(path: &Path) -> Result<Self, String> {
        let shown = path.display();
        let text =
            std::fs::read(path).map_err(|error| format!("{shown}: cannot be read: {error}"))?;
        if text.len() > DEFINITIONS_BYTES_MAX {
            return Err(format!("{shown}: has more than {DEFINITIONS_BYTES_MAX} bytes"));
        }
        let asked = Asked { body: text.into(), ..Asked::default() };
        let why = |problem| format!("{shown}: {}", words(problem));
        let body = asked.object().map_err(why)?;
        read(&Catalog::new(1), &body).map_err(why)?;
        let users = body.list("users").map_err(why)?.iter();
        let users = users.filter_map(|user| user["name"].as_str().map(str::to_owned)).collect();
        Ok(Self { path: path.to_owned(), body, users })
    }

    /// Whether it says who may log in.
    pub fn has_users(&self) -> bool {
        !self.users.is_empty()
    }

    /// Brings them in: what is there and the same stays; queues and exchanges that are there and differ stay, too, and
    /// the log says so. If the cluster has nothing yet but what the definitions name, and they have users and not
    /// `guest`, `guest` goes.
    ///
    /// # Errors
    /// The cluster refused something, or could not do it: in words. What was brought in before stays.
    pub async fn bring_in(&self, api: &Api) -> Result<(), String> {
        let cluster = &api.0.cluster;
        let newest = cluster.speaks().min(Version::NEWEST);
        let agreed = async {
            while cluster.catalog().agreed() < newest {
                tokio::time::sleep(GLANCE).await;
            }
        };
        // A node of a cluster whose others are older goes on with what they know.
        let _ = tokio::time::timeout(AGREEING, agreed).await;
        let why = |problem| format!("{}: {}", self.path.display(), words(problem));
        let by = Actor::new(ITSELF, "");
        let is_new = self.is_all_of(&cluster.catalog());
        loop {
            let wanted = read(&cluster.catalog(), &self.body).map_err(why)?;
            match import(api, &by, wanted, Differing::Stay).await {
                // Without a majority the node waits, as it does before: what is in already is brought in again.
                Err(Problem::Unavailable(told)) => {
                    tracing::warn!(
                        file = %self.path.display(),
                        "definitions: the cluster cannot take them now ({told}); trying again, and serving no clients \
                         before. If it stays so, see which nodes are down: millrace cluster status"
                    );
                    tokio::time::sleep(AGAIN).await;
                }
                brought => break brought.map(drop).map_err(why)?,
            }
        }
        if is_new && self.has_users() && !self.users.iter().any(|user| user == GUEST) {
            change(api, &by, CatalogCommand::DeleteUser { name: GUEST.to_owned() })
                .await
                .map_err(why)?;
        }
        tracing::info!(file = %self.path.display(), "definitions: brought in");
        Ok(())
    }

    /// Whether a cluster is new, or an earlier start has broken off while it brought them in: it has no user and no queue
    /// that they do not name, but for `guest`.
    fn is_all_of(&self, catalog: &Catalog) -> bool {
        fn name(queue: &Value) -> Option<(&str, &str)> {
            Some((queue["vhost"].as_str()?, queue["name"].as_str()?))
        }
        let queues = self.body.list("queues").unwrap_or_default();
        let named: BTreeSet<_> = queues.iter().filter_map(name).collect();
        let is_known = |name: &str| name == GUEST || self.users.iter().any(|user| user == name);
        catalog.users().all(|user| is_known(&user.name))
            && catalog.queues().all(|queue| named.contains(&(&*queue.vhost, &*queue.name)))
    }
}

/// Who changes what nobody asked for over HTTP, in RabbitMQ's words.
const ITSELF: &str = "rmq-internal";

/// The user that every cluster begins with.
const GUEST: &str = "guest";

fn words(problem: Problem) -> String {
    match problem {
        Problem::Bad(why) if why == "not_json" => "is no JSON object".to_owned(),
        Problem::Bad(why)
        | Problem::NoPage(why)
        | Problem::NotAuthorised(why)
        | Problem::TooLarge(why)
        | Problem::Unavailable(why) => why,
        Problem::NotKnown => "is from nobody that is known".to_owned(),
        Problem::NotFound | Problem::Method => "names something that is not there".to_owned(),
        Problem::NoSession => "nobody is logged in".to_owned(),
        Problem::Unproven | Problem::TooManyWrong { .. } => "a login is refused".to_owned(),
        Problem::Failed(body) => body.to_string(),
    }
}
