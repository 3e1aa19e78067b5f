//! `millrace restore`: makes the data directory of a new cluster's node from a backup. Asks no node.
#![allow(clippy::disallowed_methods, reason = "a command reads and writes files")]

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cluster::{Home, Totals};
use machine::NodeId;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::admin::backup_files::{self, Manifest};
use super::terminal::{remark, say};

/// What `millrace restore` takes.
#[derive(clap::Args)]
#[command(after_help = "\
One node by itself; other nodes can join it later (millrace cluster add):
  millrace restore /backups/tonight /var/lib/millrace
  millrace serve --data-dir /var/lib/millrace
Three nodes at once: the same on each machine, but for --node-id. Start each without --peers:
  millrace restore /backups/tonight /var/lib/millrace --node-id 1 --peers 1=10.0.0.1:7000,2=10.0.0.2:7000,3=10.0.0.3:7000
  millrace serve --data-dir /var/lib/millrace --peer-listen 10.0.0.1:7000

The restored nodes are a new cluster, which nodes of the old one refuse. A message that was confirmed before the
backup began and not acknowledged is in its queue; one that was delivered and not acknowledged is delivered again.
Exit code 1: refused, with the reason; 2: the command line is wrong.")]
pub(crate) struct Args {
    /// Directory of the backup
    #[arg(value_name = "BACKUP")]
    backup: PathBuf,
    /// Data directory to make: it must be empty, or not be there yet
    #[arg(value_name = "DIR")]
    data_dir: PathBuf,
    /// Number of this node among --peers
    #[arg(long, value_name = "N", requires = "peers")]
    node_id: Option<u64>,
    /// All nodes of the new cluster: 1=ADDR:PORT,2=ADDR:PORT,...
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = peer, requires = "node_id")]
    peers: Vec<(NodeId, String)>,
    /// Print one line of JSON
    #[arg(long)]
    json: bool,
}

fn peer(text: &str) -> Result<(NodeId, String), String> {
    let wrong = || format!("'{text}' is not NUMBER=ADDR:PORT");
    let (node, address) = text.split_once('=').ok_or_else(wrong)?;
    let node = node.parse().map(NodeId).map_err(|_| wrong())?;
    let has_port = address.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let is_plain = !address.contains(char::is_whitespace);
    (has_port && is_plain && node.0 > 0).then(|| (node, address.to_owned())).ok_or_else(wrong)
}

/// Makes the directory.
pub(crate) fn run(args: &Args) -> ExitCode {
    match restore(args) {
        Ok(line) => {
            say(&line);
            ExitCode::SUCCESS
        }
        Err(why) => {
            remark(&format!("millrace: {why}"));
            ExitCode::FAILURE
        }
    }
}

fn restore(args: &Args) -> Result<String, String> {
    let manifest = backup_files::load(&args.backup)?;
    let home = home(args, &manifest)?;
    let draft = draft(&args.data_dir)?;
    // All of it, before anything is written.
    manifest.groups.iter().try_for_each(|group| group.check(&args.backup))?;
    let groups = manifest.groups.iter().map(|group| group.open(&args.backup));
    let restored = cluster::restore_directory(&draft, &home, groups);
    let totals = restored.map_err(|why| {
        format!("{why}. Nothing was restored: remove {}, and try again", draft.display())
    })?;
    publish(&draft, &args.data_dir)?;
    Ok(told(args, &manifest, &home, totals))
}

/// Whose directory it becomes. No cluster that is there has its identity, and least of all the one of the backup.
fn home(args: &Args, manifest: &Manifest) -> Result<Home, String> {
    let Some(node) = args.node_id.map(NodeId) else {
        let mut cluster = [0; 16];
        let drawn = rustix::rand::getrandom(&mut cluster, rustix::rand::GetRandomFlags::empty());
        if drawn != Ok(cluster.len()) {
            return Err("the operating system gave no random bytes".to_owned());
        }
        let nodes = vec![(NodeId(1), String::new())];
        return Ok(Home { cluster: u128::from_be_bytes(cluster), node: NodeId(1), nodes });
    };
    let mut nodes = args.peers.clone();
    nodes.sort();
    let is_distinct = nodes.is_sorted_by(|(one, _), (next, _)| one < next);
    if nodes.len() < 2 || !is_distinct || !nodes.iter().any(|(peer, _)| *peer == node) {
        return Err(
            "--peers names all nodes of the new cluster, at least two, each once, and this one, which --node-id says. A \
             node alone is restored without --peers"
                .to_owned(),
        );
    }
    // The same on each of the nodes, which do not know of each other.
    let list: Vec<String> =
        nodes.iter().map(|(node, address)| format!("{}={address}", node.0)).collect();
    let digest =
        Sha256::digest(format!("millrace restore\n{}\n{}", manifest.backup, list.join(",")));
    let first = digest.first_chunk::<16>().expect("a digest has 32 bytes");
    Ok(Home { cluster: u128::from_be_bytes(*first), node, nodes })
}

/// Where the directory is made before it has its name: nobody starts a node from half of one.
fn draft(data_dir: &Path) -> Result<PathBuf, String> {
    let shown = data_dir.display();
    let is_used = match fs::read_dir(data_dir) {
        Ok(mut entries) => entries.next().is_some(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        Err(error) => return Err(format!("{shown} cannot be used: {error}")),
    };
    if is_used {
        return Err(format!("{shown} is not empty: name a directory that is, or is not there"));
    }
    let name = data_dir.file_name().ok_or_else(|| format!("{shown} is no name of a directory"))?;
    let mut draft = name.to_owned();
    draft.push(".restoring");
    let draft = data_dir.with_file_name(draft);
    match fs::symlink_metadata(&draft) {
        Ok(_) => Err(format!(
            "{} is left from a restore that was stopped, or another restore writes there: remove it if none does",
            draft.display()
        )),
        Err(_) => Ok(draft),
    }
}

fn publish(draft: &Path, data_dir: &Path) -> Result<(), String> {
    let fail = |error: io::Error| {
        format!(
            "{} cannot become {}: {error}. The node can start from where it is",
            draft.display(),
            data_dir.display()
        )
    };
    fs::rename(draft, data_dir).map_err(fail)?;
    let parent = data_dir.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new("."))).and_then(|parent| parent.sync_all()).map_err(fail)
}

fn told(args: &Args, manifest: &Manifest, home: &Home, totals: Totals) -> String {
    let Totals { groups, messages, queues } = totals;
    let dir = args.data_dir.display();
    if args.json {
        let told = json!({
            "action": "restore",
            "directory": dir.to_string(),
            "backup": manifest.backup,
            "cluster": format!("{:032x}", home.cluster),
            "node": home.node.0,
            "groups": groups,
            "queues": queues,
            "messages": messages,
        });
        return told.to_string();
    }
    let start = match args.peers.iter().find(|(node, _)| *node == home.node) {
        Some((_, address)) => format!("millrace serve --data-dir {dir} --peer-listen {address}"),
        None => format!("millrace serve --data-dir {dir}"),
    };
    format!(
        "restored node {} of the new cluster {:032x}: {groups} groups, {queues} queues, {messages} messages. Start it \
         with {start}",
        home.node.0, home.cluster
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_a_number_and_an_address_with_a_port() {
        assert_eq!(peer("2=b.example:7000"), Ok((NodeId(2), "b.example:7000".to_owned())));
        for wrong in ["", "2", "=b:1", "x=b:1", "0=b:1", "2=b", "2=b:port", "2=b c:1"] {
            assert!(peer(wrong).is_err(), "{wrong}");
        }
    }
}
