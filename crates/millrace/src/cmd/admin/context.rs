//! `millrace context`: names for clusters, so that no command needs a URL.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;
use serde_json::{Value, json};

use super::address::Address;
use super::contexts::{self, Context, Contexts};
use super::failure::Failure;
use super::secret;
use super::session::{say, say_json};
use crate::table;

pub(crate) const EXAMPLES: &str = "\
  millrace context add prod --url https://ops@mill.example:15671      the password is asked for, and kept
  millrace context add ci --url http://ci@10.0.0.5:15672 --password-env CI_PASSWORD
  millrace context use prod
  millrace queues                             asks prod
  millrace queues --context ci                asks ci, once; so does MILLRACE_CONTEXT=ci
  millrace context list
Contexts are in ~/.config/millrace/contexts.toml (or below XDG_CONFIG_HOME), which only you can read.";

/// What `millrace context` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Print one line of JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Give a cluster a name; a name that is there gets what is given now. The first one is used from then on
    Add(Add),
    /// Use this cluster where no other is named
    Use {
        /// Name of the context
        #[arg(value_parser = contexts::name)]
        name: String,
    },
    /// List contexts
    List,
    /// Forget a context
    Remove {
        /// Name of the context
        #[arg(value_parser = contexts::name)]
        name: String,
    },
}

#[derive(clap::Args)]
struct Add {
    /// Name of the context
    #[arg(value_parser = contexts::name)]
    name: String,
    /// HTTP API of a node: http://USER@HOST:15672 or https://USER@HOST:15671
    #[arg(long)]
    url: String,
    /// Read the password from the first line of this file whenever it is needed
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// Read the password from this environment variable whenever it is needed
    #[arg(long, value_name = "VARIABLE", conflicts_with = "password_file")]
    password_env: Option<String>,
    /// Ask for the password whenever it is needed. Without any of these three it is asked for now, and kept
    #[arg(long, conflicts_with_all = ["password_file", "password_env"])]
    password_prompt: bool,
    /// PEM file with the authority that signed the node's certificate
    #[arg(long, value_name = "FILE")]
    cacertfile: Option<PathBuf>,
    /// PEM file with the certificate to show, if the node asks its clients for one
    #[arg(long, value_name = "FILE", requires = "keyfile")]
    certfile: Option<PathBuf>,
    /// PEM file with the key of that certificate
    #[arg(long, value_name = "FILE", requires = "certfile")]
    keyfile: Option<PathBuf>,
}

pub(crate) fn run(args: Args) -> ExitCode {
    let is_json = args.json;
    let worked = match args.command {
        Command::Add(what) => add(what).and_then(|name| told(is_json, "add", "added", &name)),
        Command::Use { name } => switch(&name).and_then(|()| told(is_json, "use", "using", &name)),
        Command::List => list(is_json),
        Command::Remove { name } => {
            remove(&name).and_then(|()| told(is_json, "remove", "removed", &name))
        }
    };
    match worked {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.end(),
    }
}

fn told(is_json: bool, action: &str, past: &str, name: &str) -> Result<(), Failure> {
    match is_json {
        true => say_json(&json!({ "action": action, "kind": "context", "name": name })),
        false => say(&format!("{past} context {name}")),
    }
}

fn add(what: Add) -> Result<String, Failure> {
    let mut contexts = Contexts::load()?;
    let address: Address =
        what.url.parse().map_err(|why| Failure::Usage(format!("--url: {why}")))?;
    // A command is used in any folder.
    let absolute = |path: Option<PathBuf>| -> Result<Option<PathBuf>, Failure> {
        let path = path.map(std::path::absolute).transpose();
        path.map_err(|error| Failure::Usage(format!("a file's name: {error}")))
    };
    let is_kept =
        what.password_file.is_none() && what.password_env.is_none() && !what.password_prompt;
    let password = match (&address.password, is_kept) {
        (Some(password), _) => Some(password.expose().to_owned()),
        (None, true) => Some(typed(&address)?),
        (None, false) => None,
    };
    let context = Context {
        url: address.to_string(),
        password,
        password_file: absolute(what.password_file)?,
        password_env: what.password_env,
        cacertfile: absolute(what.cacertfile)?,
        certfile: absolute(what.certfile)?,
        keyfile: absolute(what.keyfile)?,
    };
    contexts.current.get_or_insert_with(|| what.name.clone());
    contexts.contexts.insert(what.name.clone(), context);
    contexts.store()?;
    Ok(what.name)
}

/// What is typed, or the first line of standard input.
fn typed(address: &Address) -> Result<String, Failure> {
    let user = address.user.as_deref().unwrap_or("guest");
    let prompt = format!("Password of {user} at {}: ", address.place());
    Ok(secret::ask_or_read(&prompt)?.expose().to_owned())
}

fn switch(name: &str) -> Result<(), Failure> {
    let mut contexts = Contexts::load()?;
    contexts.find(name)?;
    contexts.current = Some(name.to_owned());
    contexts.store()
}

fn remove(name: &str) -> Result<(), Failure> {
    let mut contexts = Contexts::load()?;
    contexts.find(name)?;
    contexts.contexts.remove(name);
    if contexts.current.as_deref() == Some(name) {
        contexts.current = None;
    }
    contexts.store()
}

fn list(is_json: bool) -> Result<(), Failure> {
    let contexts = Contexts::load()?;
    let is_current = |name: &String| contexts.current.as_ref() == Some(name);
    if is_json {
        let shown = contexts.contexts.iter().map(|(name, context)| {
            json!({
                "name": name,
                "url": context.url,
                "current": is_current(name),
                "password": context.password_source(),
            })
        });
        let shown: Vec<Value> = shown.collect();
        return say_json(&json!({ "count": shown.len(), "contexts": shown }));
    }
    if contexts.contexts.is_empty() {
        return say("no contexts; `millrace context add NAME --url URL` makes one");
    }
    let rows = contexts.contexts.iter().map(|(name, context)| {
        let mark = if is_current(name) { "*" } else { "" };
        let source = table::shown(&context.password_source());
        [mark.to_owned(), table::shown(name), table::shown(&context.url), source]
    });
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = table::grid(&mut text, &["", "Name", "URL", "Password"], &rows.collect::<Vec<_>>());
    say(&text)
}
