//! Where a node's secret comes from. Decides; reads nothing.

use crate::peer::handshake::{is_no_secret, no_secret};

/// Characters of a secret that is not easily guessed.
const SECRET_CHARS: usize = 16;

/// What is known when a node starts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known<'a> {
    /// What the configuration says.
    pub(crate) configured: Option<&'a str>,
    /// What the data directory says.
    pub(crate) kept: Option<&'a str>,
    /// The cluster that the data directory belongs to. `None`: it is new.
    pub(crate) cluster: Option<u128>,
    /// The node is to be taken in by a member.
    pub(crate) is_joining: bool,
    /// Addresses of all other nodes that are configured or known.
    pub(crate) others: Vec<&'a str>,
}

/// The secret, or how to get it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    Use(String),
    /// The node is the cluster's only one: a new secret.
    Make,
    /// All nodes are on this machine: a secret that they find in one place there.
    OfMachine,
}

/// Which secret a node goes by. A refusal is a sentence that says what to do.
pub(crate) fn choose(known: &Known<'_>) -> Result<Choice, String> {
    if let Some(text) = known.configured.or(known.kept) {
        return Ok(Choice::Use(text.to_owned()));
    }
    if known.is_joining {
        return Err("a node that joins a cluster needs its secret: run `millrace cluster token` on a \
                    member, and give what it prints as cluster_secret, as MILLRACE_CLUSTER_SECRET, or \
                    in a file as cluster_secret_file"
            .to_owned());
    }
    match known.cluster {
        _ if known.others.is_empty() => Ok(Choice::Make),
        Some(cluster) => Ok(Choice::Use(no_secret(cluster))),
        None if known.others.iter().all(|address| is_loopback(address)) => Ok(Choice::OfMachine),
        None => Err("a cluster on several machines needs a secret, so that nobody else can be one of its \
                     nodes: run `millrace cluster token --new > FILE` once, copy the file to every node, \
                     and start each with --set cluster_secret_file=FILE"
            .to_owned()),
    }
}

/// What the log says at a start with that secret, if anything.
pub(crate) fn warning(text: &str) -> Option<&'static str> {
    if is_no_secret(text) {
        return Some(
            "this cluster has no secret: whoever reaches a peer port can act as a node. Stop all nodes, \
             give each the same cluster_secret (`millrace cluster token --new` makes one), and start them",
        );
    }
    (text.chars().count() < SECRET_CHARS).then_some(
        "cluster_secret is short enough to be guessed: `millrace cluster token --new` makes a good one; \
         give it to all nodes, stop all, and start them",
    )
}

/// Whether an address is of this machine only.
fn is_loopback(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let is_loopback = |host: std::net::IpAddr| host.is_loopback();
    host == "localhost" || host.parse().is_ok_and(is_loopback)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: [&str; 2] = ["127.0.0.1:7001", "[::1]:7002"];
    const AWAY: [&str; 2] = ["127.0.0.1:7001", "10.0.0.2:7000"];

    fn new(others: &[&'static str]) -> Known<'static> {
        Known { others: others.to_vec(), ..Known::default() }
    }

    fn used(text: &str) -> Result<Choice, String> {
        Ok(Choice::Use(text.to_owned()))
    }

    #[test]
    fn what_is_configured_goes_before_what_is_kept_and_that_before_all_else() {
        let both = Known { configured: Some("configured"), kept: Some("kept"), ..new(&AWAY) };
        assert_eq!(choose(&both), used("configured"));
        assert_eq!(choose(&Known { configured: None, ..both }), used("kept"));
    }

    #[test]
    fn a_cluster_is_not_founded_without_a_secret() {
        assert_eq!(choose(&new(&[])), Ok(Choice::Make));
        assert_eq!(choose(&new(&HERE)), Ok(Choice::OfMachine));
        assert!(choose(&new(&AWAY)).unwrap_err().contains("cluster_secret_file=FILE"));
        let joining = Known { is_joining: true, ..new(&HERE) };
        assert!(choose(&joining).unwrap_err().contains("`millrace cluster token`"));
        assert!(warning("guess").is_some_and(|words| words.contains("guessed")));
    }

    #[test]
    fn a_cluster_of_the_time_before_secrets_goes_on_and_is_warned() {
        let old = choose(&Known { cluster: Some(0xfeed), ..new(&AWAY) });
        let Ok(Choice::Use(text)) = old else { panic!("{old:?}") };
        assert!(warning(&text).is_some_and(|words| words.contains("no secret")));
        assert_eq!(warning(&"5e".repeat(32)), None);
        let alone = choose(&Known { cluster: Some(0xfeed), ..new(&[]) });
        assert_eq!(alone, Ok(Choice::Make), "nobody else goes by the old one");
    }
}
