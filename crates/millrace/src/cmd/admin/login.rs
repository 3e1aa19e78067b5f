//! Which node is asked, and by whom: options, variables, contexts.

use std::path::PathBuf;
use std::time::Duration;

use super::address::Address;
use super::contexts::{Context, Contexts};
use super::failure::{Failure, remark};
use super::secret::{self, Secret};

/// Where a node listens that is started with `--http 127.0.0.1:15672`.
const DEFAULT_URL: &str = "http://127.0.0.1:15672";
/// The user that every new node has, and its password: good on the node's own machine.
const GUEST: &str = "guest";

const URL_VARIABLE: &str = "MILLRACE_HTTP_URL";
const PASSWORD_VARIABLE: &str = "MILLRACE_HTTP_PASSWORD";
const CONTEXT_VARIABLE: &str = "MILLRACE_CONTEXT";

/// Options that all commands over HTTP have.
#[derive(clap::Args, Clone, Debug)]
#[group(skip)]
pub(crate) struct Options {
    /// HTTP API of any node of the cluster: http://USER@HOST:15672 or https://USER@HOST:15671
    /// [env: MILLRACE_HTTP_URL] [default: http://guest@127.0.0.1:15672]
    #[arg(
        long,
        value_name = "URL",
        global = true,
        conflicts_with = "context",
        help_heading = "Cluster"
    )]
    url: Option<String>,
    /// A cluster that `millrace context add` has given a name [env: MILLRACE_CONTEXT]
    #[arg(long, value_name = "NAME", global = true, help_heading = "Cluster")]
    context: Option<String>,
    /// Read the password of the login from the first line of a file [env of the password itself:
    /// MILLRACE_HTTP_PASSWORD]
    #[arg(long, value_name = "FILE", global = true, help_heading = "Cluster")]
    password_file: Option<PathBuf>,
    /// PEM file with the authority that signed the node's certificate [default: those of this machine]
    #[arg(long, value_name = "FILE", global = true, help_heading = "Cluster")]
    cacertfile: Option<PathBuf>,
    /// PEM file with the certificate to show, if the node asks its clients for one
    #[arg(
        long,
        value_name = "FILE",
        global = true,
        requires = "keyfile",
        help_heading = "Cluster"
    )]
    certfile: Option<PathBuf>,
    /// PEM file with the key of that certificate
    #[arg(
        long,
        value_name = "FILE",
        global = true,
        requires = "certfile",
        help_heading = "Cluster"
    )]
    keyfile: Option<PathBuf>,
    /// How long one answer may take
    #[arg(
        long,
        value_name = "TIME",
        value_parser = service::duration,
        default_value = "30s",
        global = true,
        help_heading = "Cluster"
    )]
    request_timeout: Duration,
    /// Print one line of JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

/// Which node is asked, by whom, and how.
#[derive(Clone, Debug)]
pub(crate) struct Login {
    pub(crate) address: Address,
    pub(crate) user: String,
    pub(crate) password: Secret,
    pub(crate) cacertfile: Option<PathBuf>,
    /// The certificate to show, and its key.
    pub(crate) identity: Option<(PathBuf, PathBuf)>,
    pub(crate) request_timeout: Duration,
}

impl Options {
    /// What options, variables and contexts say together: an option goes before a variable, and a URL before a
    /// context.
    pub(crate) fn login(&self) -> Result<Login, Failure> {
        let variable = |name| std::env::var(name).ok().filter(|text| !text.is_empty());
        let (url, from, context) = match (&self.url, &self.context) {
            (Some(url), _) => (url.clone(), "--url", None),
            (None, Some(name)) => of_context(name)?,
            (None, None) => match (variable(URL_VARIABLE), variable(CONTEXT_VARIABLE)) {
                (Some(url), _) => (url, URL_VARIABLE, None),
                (None, Some(name)) => of_context(&name)?,
                (None, None) => {
                    let contexts = Contexts::load()?;
                    match &contexts.current {
                        Some(name) => with_context(contexts.find(name)?),
                        None => (DEFAULT_URL.to_owned(), "the default", None),
                    }
                }
            },
        };
        let address: Address =
            url.parse().map_err(|why| Failure::Usage(format!("{from}: {why}")))?;
        if from == "--url" && address.password.is_some() {
            remark(
                "millrace: warning: a password on the command line can be seen by others on this machine, and stays in \
                 the shell's history; use --password-file or MILLRACE_HTTP_PASSWORD",
            );
        }
        let context = context.unwrap_or_default();
        let user = address.user.clone().unwrap_or_else(|| GUEST.to_owned());
        let password = match &self.password_file {
            Some(file) => secret::of_file(file)?,
            None => password(&address, &user, &context)?,
        };
        let pick = |option: &Option<PathBuf>, kept: Option<PathBuf>| option.clone().or(kept);
        let identity =
            pick(&self.certfile, context.certfile).zip(pick(&self.keyfile, context.keyfile));
        Ok(Login {
            address,
            user,
            password,
            cacertfile: pick(&self.cacertfile, context.cacertfile),
            identity,
            request_timeout: self.request_timeout,
        })
    }
}

fn of_context(name: &str) -> Result<(String, &'static str, Option<Context>), Failure> {
    Ok(with_context(Contexts::load()?.find(name)?))
}

fn with_context(context: &Context) -> (String, &'static str, Option<Context>) {
    (context.url.clone(), "the context", Some(context.clone()))
}

/// The password, if no option says where it is.
fn password(address: &Address, user: &str, context: &Context) -> Result<Secret, Failure> {
    if let Some(password) = &address.password {
        return Ok(password.clone());
    }
    if let Some(password) = &context.password {
        return Ok(Secret::new(password.clone()));
    }
    if let Some(file) = &context.password_file {
        return secret::of_file(file);
    }
    if let Some(variable) = &context.password_env {
        return secret::of_variable(variable);
    }
    if std::env::var_os(PASSWORD_VARIABLE).is_some() {
        return secret::of_variable(PASSWORD_VARIABLE);
    }
    if user == GUEST {
        return Ok(Secret::new(GUEST.to_owned()));
    }
    if !std::io::IsTerminal::is_terminal(&std::io::stdin()) {
        return Err(Failure::Usage(format!(
            "no password for {user} at {}: give --password-file FILE, set {PASSWORD_VARIABLE}, or use a context",
            address.place()
        )));
    }
    secret::ask(&format!("Password of {user} at {}: ", address.place()))
}
