//! `millrace limits`: how much vhosts and users may have.

use clap::Subcommand;
use serde_json::{Map, Value, json};

use super::api::Ask;
use super::column::{table, text};
use super::deed::{Care, Deed, Target, told};
use super::failure::Failure;
use super::list::{self, Listed, Listing};
use super::path::Path;
use super::resource::InVhost;
use super::session::Session;
use crate::table::shown;

pub(crate) const EXAMPLES: &str = "\
  millrace limits set-vhost '{\"max-connections\":100,\"max-queues\":1000}' -p shop
  millrace limits set-user ann '{\"max-connections\":10,\"max-channels\":100}'
  millrace limits list --users
  millrace limits clear-vhost max-queues -p shop
  millrace limits clear-user ann all";

/// All limits of a vhost or user.
const ALL: &str = "all";

const VHOSTS: Listing = Listing {
    name: "limits",
    has_names: false,
    columns: &[text("vhost", "Vhost"), table("value", "Limits")],
};

const USERS: Listing = Listing {
    name: "limits",
    has_names: false,
    columns: &[text("user", "User"), table("value", "Limits")],
};

/// What can be done with limits.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// List the limits of vhosts, or of users; `millrace limits` alone lists those of vhosts
    List {
        #[command(flatten)]
        listed: Listed,
        /// Those of users
        #[arg(long)]
        users: bool,
    },
    /// Limit a vhost
    SetVhost {
        /// A JSON object of max-connections and max-queues, such as {"max-queues":1000}
        limits: String,
    },
    /// Limit a user
    SetUser {
        /// The user
        user: String,
        /// A JSON object of max-connections and max-channels, such as {"max-connections":10}
        limits: String,
    },
    /// Take limits of a vhost away
    ClearVhost {
        /// Name of the limit, or `all`
        #[arg(default_value = ALL)]
        limit: String,
        #[command(flatten)]
        care: Care,
    },
    /// Take limits of a user away
    ClearUser {
        /// The user
        user: String,
        /// Name of the limit, or `all`
        limit: String,
        #[command(flatten)]
        care: Care,
    },
}

/// Whose limits.
#[derive(Clone, Copy)]
enum Whose<'a> {
    Vhost(&'a str),
    User(&'a str),
}

impl Whose<'_> {
    fn folder(self) -> &'static str {
        match self {
            Self::Vhost(_) => "vhost-limits",
            Self::User(_) => "user-limits",
        }
    }

    fn kind(self) -> &'static str {
        match self {
            Self::Vhost(_) => "vhost",
            Self::User(_) => "user",
        }
    }

    fn name(self) -> String {
        match self {
            Self::Vhost(name) | Self::User(name) => name.to_owned(),
        }
    }

    fn label(self) -> String {
        format!("limits of {} {}", self.kind(), shown(&self.name()))
    }

    fn path(self, more: &[&str]) -> Path {
        Path::of(&[&[self.folder(), &self.name()][..], more].concat())
    }
}

pub(crate) async fn run(session: &mut Session, args: InVhost<Command>) -> Result<(), Failure> {
    let InVhost { vhost, list, command, .. } = args;
    let (options, is_of_users) = match command {
        None => (list, false),
        Some(Command::List { listed, users }) => (listed.options(list)?, users),
        Some(Command::SetVhost { limits }) => {
            list.none_before("set-vhost")?;
            return set(session, Whose::Vhost(vhost.name()), &limits).await;
        }
        Some(Command::SetUser { user, limits }) => {
            list.none_before("set-user")?;
            return set(session, Whose::User(&user), &limits).await;
        }
        Some(Command::ClearVhost { limit, care }) => {
            list.none_before("clear-vhost")?;
            return clear(session, Whose::Vhost(vhost.name()), &limit, care).await;
        }
        Some(Command::ClearUser { user, limit, care }) => {
            list.none_before("clear-user")?;
            return clear(session, Whose::User(&user), &limit, care).await;
        }
    };
    let (listing, path) = match (is_of_users, &vhost.vhost) {
        (true, _) => (&USERS, Path::of(&["user-limits"])),
        (false, Some(vhost)) => (&VHOSTS, Path::of(&["vhost-limits", vhost])),
        (false, None) => (&VHOSTS, Path::of(&["vhost-limits"])),
    };
    list::show(session, listing, path, &options).await
}

async fn set(session: &mut Session, whose: Whose<'_>, limits: &str) -> Result<(), Failure> {
    let limits: Map<String, Value> = serde_json::from_str(limits).map_err(|error| {
        let example = "write an object, such as {\"max-connections\":10}";
        Failure::Usage(format!("the limits are no JSON object ({error}): {example}"))
    })?;
    for (name, value) in &limits {
        let path = whose.path(&[name]);
        let what = format!("{} ({})", whose.label(), shown(name));
        session.api.done(&Ask::put(path, json!({ "value": value }), what)).await?;
    }
    let facts = json!({ "kind": whose.kind(), "name": whose.name(), "limits": limits });
    told(session, "set-limits", "set the", &whose.label(), facts)
}

async fn clear(
    session: &mut Session,
    whose: Whose<'_>,
    limit: &str,
    care: Care,
) -> Result<(), Failure> {
    let names = match limit {
        ALL => held(session, whose).await?,
        name => vec![name.to_owned()],
    };
    let target = |name: &String| {
        let label = format!("{} of {} {}", shown(name), whose.kind(), shown(&whose.name()));
        Target {
            ask: Ask::delete(whose.path(&[name]), &label),
            label,
            loss: String::new(),
            facts: json!({ whose.kind(): whose.name(), "limit": name }),
        }
    };
    let deed = Deed {
        action: "clear-limits",
        words: ("clear", "cleared"),
        kind: ("limit", "limits"),
        is_found: false,
    };
    deed.run(session, names.iter().map(target).collect(), care).await
}

/// The names of the limits that are set.
async fn held(session: &mut Session, whose: Whose<'_>) -> Result<Vec<String>, Failure> {
    let found = session.api.get(whose.path(&[]), &whose.label()).await?;
    let limits = found.as_array().and_then(|found| found.first()).map(|it| &it["value"]);
    let names = limits.and_then(Value::as_object).map(|limits| limits.keys().cloned().collect());
    Ok(names.unwrap_or_default())
}
