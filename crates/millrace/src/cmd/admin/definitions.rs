//! `millrace definitions`: what a broker is made of, written out and brought in.
#![allow(clippy::disallowed_methods, reason = "a command reads a file of its user")]

use std::fs::File;
use std::io::Read as _;
use std::path::PathBuf;

use clap::Subcommand;
use serde_json::{Map, Value, json};

use super::api::Ask;
use super::deed::told;
use super::failure::{Failure, remark};
use super::login;
use super::path::Path;
use super::private_file;
use super::resource::Vhost;
use super::session::{Session, json_line, say, say_json};

pub(crate) const EXAMPLES: &str = "\
  millrace definitions export broker.json     everything; the file holds hashes of passwords
  millrace definitions export -p shop - | jq .queues
  millrace definitions import broker.json --dry-run
  rabbitmqctl export_definitions - | millrace definitions import -
Messages are not in them.";

/// Bytes of definitions: what the server takes.
const BYTES_MAX: u64 = 64 << 20;
/// What definitions have, in the order in which it is told.
const PARTS: [&str; 9] = [
    "vhosts",
    "users",
    "permissions",
    "topic_permissions",
    "policies",
    "parameters",
    "queues",
    "exchanges",
    "bindings",
];

/// What `millrace definitions` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) login: login::Options,
    #[command(flatten)]
    vhost: Vhost,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Write users, vhosts, permissions, policies, queues, exchanges and bindings out as JSON
    Export {
        /// The file, which only you can read then; -: standard output
        #[arg(default_value = "-")]
        file: PathBuf,
    },
    /// Bring definitions in, of Millrace or RabbitMQ. What is there stays; the same twice changes nothing
    Import {
        /// The file; -: standard input
        file: PathBuf,
        /// Say what the file holds, and change nothing
        #[arg(long)]
        dry_run: bool,
    },
}

pub(crate) async fn run(session: &mut Session, args: Args) -> Result<(), Failure> {
    let Args { vhost, command, .. } = args;
    // One vhost's definitions have no users, and name no vhost.
    let (path, label) = match &vhost.vhost {
        Some(vhost) => {
            let label = format!("definitions of vhost {}", crate::table::shown(vhost));
            (Path::of(&["definitions", vhost]), label)
        }
        None => (Path::of(&["definitions"]), "definitions".to_owned()),
    };
    match command {
        Command::Export { file } => export(session, path, &label, file).await,
        Command::Import { file, dry_run } => import(session, path, &label, file, dry_run).await,
    }
}

fn is_stream(file: &std::path::Path) -> bool {
    file.as_os_str() == "-"
}

async fn export(
    session: &mut Session,
    path: Path,
    label: &str,
    file: PathBuf,
) -> Result<(), Failure> {
    let definitions = session.api.get(path, label).await?;
    if is_stream(&file) {
        return say(&json_line(&definitions));
    }
    let name = file.display();
    let text = format!("{}\n", json_line(&definitions));
    let written = private_file::write(&file, text.as_bytes());
    written.map_err(|error| Failure::Usage(format!("{name} cannot be written: {error}")))?;
    let facts = json!({ "file": name.to_string(), "parts": counts(&definitions) });
    told(
        session,
        "export",
        "wrote",
        &format!("{label} into {name}: {}", words(&definitions)),
        facts,
    )
}

async fn import(
    session: &mut Session,
    path: Path,
    label: &str,
    file: PathBuf,
    is_dry: bool,
) -> Result<(), Failure> {
    let definitions = read(&file)?;
    let held = words(&definitions);
    if is_dry {
        let counts = counts(&definitions);
        return match session.is_json {
            true => say_json(&json!({ "action": "import", "dry_run": true, "parts": counts })),
            false => say(&format!("would bring in {held}\nnothing was done (--dry-run)")),
        };
    }
    if !session.is_json {
        remark(&format!("bring in {held}"));
    }
    let counts = counts(&definitions);
    session.api.done(&Ask::post(path, definitions, label)).await?;
    let facts = json!({ "dry_run": false, "parts": counts });
    told(session, "import", "brought in", &held, facts)
}

fn read(file: &std::path::Path) -> Result<Value, Failure> {
    let name =
        if is_stream(file) { "standard input".to_owned() } else { file.display().to_string() };
    let unread = |error| Failure::Usage(format!("{name} cannot be read: {error}"));
    let mut bytes = Vec::new();
    let read = match is_stream(file) {
        true => std::io::stdin().lock().take(BYTES_MAX + 1).read_to_end(&mut bytes),
        false => File::open(file).and_then(|file| file.take(BYTES_MAX + 1).read_to_end(&mut bytes)),
    };
    read.map_err(unread)?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(Failure::Usage(format!("{name} has more than {BYTES_MAX} bytes")));
    }
    match serde_json::from_slice(&bytes) {
        Ok(definitions @ Value::Object(_)) => Ok(definitions),
        Ok(_) => Err(Failure::Usage(format!("{name} holds JSON, and no object with definitions"))),
        Err(error) => Err(Failure::Usage(format!("{name} is no JSON: {error}"))),
    }
}

fn parts(definitions: &Value) -> impl Iterator<Item = (&'static str, usize)> {
    PARTS.iter().filter_map(|part| Some((*part, definitions.get(*part)?.as_array()?.len())))
}

fn counts(definitions: &Value) -> Map<String, Value> {
    parts(definitions).map(|(part, count)| (part.to_owned(), count.into())).collect()
}

fn words(definitions: &Value) -> String {
    let parts = parts(definitions).filter(|(_, count)| *count > 0);
    let words: Vec<String> =
        parts.map(|(part, count)| format!("{count} {}", part.replace('_', " "))).collect();
    if words.is_empty() { "nothing".to_owned() } else { words.join(", ") }
}
