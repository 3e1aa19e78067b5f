//! What the command line of each kind of thing has: which cluster, which vhost, how to list, and a subcommand.

use clap::Subcommand;

use super::failure::Failure;
use super::list;
use super::login;

/// The vhost that every broker begins with.
const DEFAULT_VHOST: &str = "/";

/// Things that are in no vhost.
#[derive(clap::Args)]
pub(crate) struct Global<C: Subcommand> {
    #[command(flatten)]
    pub(crate) login: login::Options,
    #[command(flatten)]
    pub(crate) list: list::Options,
    #[command(subcommand)]
    pub(crate) command: Option<C>,
}

/// Things in vhosts.
#[derive(clap::Args)]
pub(crate) struct InVhost<C: Subcommand> {
    #[command(flatten)]
    pub(crate) login: login::Options,
    #[command(flatten)]
    pub(crate) vhost: Vhost,
    #[command(flatten)]
    pub(crate) list: list::Options,
    #[command(subcommand)]
    pub(crate) command: Option<C>,
}

/// Which vhost.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Vhost {
    /// The vhost [default: lists show all that the user may see; everything else is about the vhost /]
    #[arg(long, short = 'p', value_name = "NAME", global = true)]
    pub(crate) vhost: Option<String>,
}

impl Vhost {
    /// The vhost of what is made, changed or deleted.
    pub(crate) fn name(&self) -> &str {
        self.vhost.as_deref().unwrap_or(DEFAULT_VHOST)
    }
}

/// Arguments `KEY=VALUE` as one object. A value that is JSON is taken as that, any other as text.
pub(crate) fn arguments(given: &[String]) -> Result<serde_json::Value, Failure> {
    let pair = |text: &String| {
        let (key, value) = text.split_once('=').ok_or_else(|| {
            Failure::Usage(format!(
                "--argument {text}: write KEY=VALUE, for example x-max-length=1000"
            ))
        })?;
        let value = serde_json::from_str(value).unwrap_or_else(|_| value.into());
        Ok((key.to_owned(), value))
    };
    let pairs: Result<serde_json::Map<String, serde_json::Value>, Failure> =
        given.iter().map(pair).collect();
    Ok(pairs?.into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_argument_is_json_or_text() {
        let given = ["x-max-length=10", "x-overflow=drop-head", "x=\"10\"", "y={\"a\":1}", "z=a=b"];
        let made = arguments(&given.map(str::to_owned)).unwrap();
        let right = json!({
            "x-max-length": 10, "x-overflow": "drop-head", "x": "10", "y": { "a": 1 }, "z": "a=b",
        });
        assert_eq!(made, right);
        assert!(arguments(&["x-max-length".to_owned()]).is_err());
    }
}
