//! `millrace policies`, and those of operators.

use clap::Subcommand;
use serde_json::{Value, json};

use super::api::Ask;
use super::column::{count, table, text};
use super::deed::{Care, Deed, Target, in_vhost, told};
use super::failure::Failure;
use super::list::{self, Listed, Listing};
use super::path::Path;
use super::resource::InVhost;
use super::session::Session;

pub(crate) const EXAMPLES: &str = "\
Limit the queues whose names begin with logs., also those that are there:
  millrace policies set logs '^logs\\.' '{\"max-length\":100000,\"overflow\":\"drop-head\"}' --apply-to queues -p shop
Dead letters of all queues, below other policies:
  millrace policies set dead '.*' '{\"dead-letter-exchange\":\"dead\"}' --priority -10
A bound that users cannot lift:
  millrace policies set bound '.*' '{\"max-length\":1000000}' --operator
  millrace policies delete logs -p shop --dry-run";

/// Queues that are counted before a policy is deleted.
const COUNTED_MAX: usize = 10_000;

const LISTING: Listing = Listing {
    name: "policies",
    has_names: true,
    columns: &[
        text("vhost", "Vhost"),
        text("name", "Name"),
        text("pattern", "Pattern"),
        text("apply-to", "Applies to"),
        count("priority", "Priority"),
        table("definition", "Definition"),
    ],
};

/// What can be done with policies.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// List policies; so does `millrace policies` alone
    List {
        #[command(flatten)]
        listed: Listed,
        /// Those of operators
        #[arg(long)]
        operator: bool,
    },
    /// Set a policy: for all queues and exchanges whose names match, now and later
    Set(Set),
    /// Delete a policy: its queues are as if it had never been
    Delete {
        /// Name of the policy
        name: String,
        /// It is one of operators
        #[arg(long)]
        operator: bool,
        #[command(flatten)]
        care: Care,
    },
}

/// A policy that is set.
#[derive(clap::Args)]
pub(crate) struct Set {
    /// Name of the policy
    name: String,
    /// Regular expression for names
    pattern: String,
    /// A JSON object, such as {"max-length":1000}
    definition: String,
    /// Of several policies that match, the one with the highest priority counts
    #[arg(long, value_name = "NUMBER", default_value_t = 0, allow_negative_numbers = true)]
    priority: i32,
    /// queues, classic_queues, quorum_queues, exchanges or all
    #[arg(long, value_name = "WHAT", default_value = "all")]
    apply_to: String,
    /// Set one of operators: where both name a limit, the smaller counts
    #[arg(long)]
    operator: bool,
}

pub(crate) async fn run(session: &mut Session, args: InVhost<Command>) -> Result<(), Failure> {
    let InVhost { vhost, list, command, .. } = args;
    let (options, is_operators) = match command {
        None => (list, false),
        Some(Command::List { listed, operator }) => (listed.options(list)?, operator),
        Some(Command::Set(what)) => {
            list.none_before("set")?;
            return set(session, vhost.name(), what).await;
        }
        Some(Command::Delete { name, operator, care }) => {
            list.none_before("delete")?;
            return delete(session, vhost.name(), &name, operator, care).await;
        }
    };
    let path = match &vhost.vhost {
        Some(vhost) => Path::of(&[folder(is_operators), vhost]),
        None => Path::of(&[folder(is_operators)]),
    };
    list::show(session, &LISTING, path, &options).await
}

fn folder(is_operators: bool) -> &'static str {
    if is_operators { "operator-policies" } else { "policies" }
}

fn kind(is_operators: bool) -> &'static str {
    if is_operators { "operator policy" } else { "policy" }
}

async fn set(session: &mut Session, vhost: &str, what: Set) -> Result<(), Failure> {
    let definition: Value = serde_json::from_str(&what.definition).map_err(|error| {
        Failure::Usage(format!(
            "the definition is no JSON ({error}): write an object, such as {{\"max-length\":1000}}"
        ))
    })?;
    let label = in_vhost(kind(what.operator), &what.name, vhost);
    let body = json!({
        "pattern": what.pattern,
        "definition": definition,
        "priority": what.priority,
        "apply-to": what.apply_to,
    });
    let path = Path::of(&[folder(what.operator), vhost, &what.name]);
    let answer = session.api.done(&Ask::put(path, body, &label)).await?;
    let created = answer.status == http::StatusCode::CREATED;
    let facts = json!({
        "kind": kind(what.operator), "vhost": vhost, "name": what.name, "created": created,
    });
    told(session, "set", "set", &label, facts)
}

async fn delete(
    session: &mut Session,
    vhost: &str,
    name: &str,
    is_operators: bool,
    care: Care,
) -> Result<(), Failure> {
    let label = in_vhost(kind(is_operators), name, vhost);
    let path = Path::of(&[folder(is_operators), vhost, name]);
    session.api.get(path.clone(), &label).await?;
    let column = if is_operators { "operator_policy" } else { "policy" };
    let queues = Path::of(&["queues", vhost]).with("columns", column);
    let queues = list::fetch(session, &label, &queues, COUNTED_MAX).await?;
    let governed = queues.iter().filter(|queue| queue[column] == *name).count();
    let least = if queues.len() < COUNTED_MAX { "" } else { "at least " };
    let target = Target {
        ask: Ask::delete(path, &label),
        label,
        loss: format!("it governs {least}{governed} queues"),
        facts: json!({ "vhost": vhost, "name": name, "queues": governed }),
    };
    let deed = Deed {
        action: "delete",
        words: ("delete", "deleted"),
        kind: (kind(is_operators), "policies"),
        is_found: false,
    };
    deed.run(session, vec![target], care).await
}
