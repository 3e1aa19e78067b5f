//! The cluster's secret on the disk: in each node's data directory, and, for nodes that are all on one
//! machine, in one place that they share while they found their cluster.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use super::peers::draw;

/// In the data directory, for its owner only. One line of text.
const FILE: &str = "SECRET";
const TEMPORARY: &str = "SECRET.new";

/// Bytes that a file with a secret may have.
const BYTES_MAX: u64 = 64 << 10;

/// A secret that nobody can guess, as a text.
pub fn new_secret() -> String {
    let bytes: [u8; 32] = draw();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The secret that a node's data directory keeps: what a node needs that is to join its cluster.
pub fn kept_secret(data_dir: &Path) -> Result<String, String> {
    let path = data_dir.join(FILE);
    match load(&path)? {
        Some(text) => Ok(text),
        None => Err(format!(
            "the file {} does not exist: name the data directory of a node of the cluster with --data-dir DIR. \
             If that node has not run since its last upgrade, start it once",
            path.display()
        )),
    }
}

/// What the data directory keeps, if it keeps one.
pub(super) fn kept(data_dir: &Path) -> Result<Option<String>, String> {
    load(&data_dir.join(FILE))
}

/// Keeps the secret for the next start, unless it is there.
pub(super) fn keep(data_dir: &Path, text: &str) -> Result<(), String> {
    if kept(data_dir)?.as_deref() == Some(text) {
        return Ok(());
    }
    store(data_dir, text).map_err(|error| {
        format!("the cluster's secret cannot be kept in {}: {error}", data_dir.display())
    })
}

/// The secret of a cluster whose nodes are all of this machine and this user: the first node of them to
/// ask makes it.
pub(super) fn of_machine(cluster: u128) -> Result<String, String> {
    let user = rustix::process::geteuid().as_raw();
    let dir = std::env::temp_dir().join(format!("millrace-{user}"));
    let fail = |error: &dyn std::fmt::Display| {
        format!(
            "the nodes of this machine cannot share a secret in {}: {error}. Give all of them the same \
             cluster_secret; `millrace cluster token --new` makes one",
            dir.display()
        )
    };
    match DirBuilder::new().mode(0o700).create(&dir) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(fail(&error)),
        Ok(()) | Err(_) => {}
    }
    let found = fs::symlink_metadata(&dir).map_err(|error| fail(&error))?;
    if !found.is_dir() || found.uid() != user || found.mode() & 0o077 != 0 {
        return Err(fail(&"it is not a directory of this user alone"));
    }
    let name = format!("{cluster:032x}");
    if let Some(text) = load(&dir.join(&name))? {
        return Ok(text);
    }
    // Of several nodes that start at once one makes the name, and all read what it wrote.
    let mine = dir.join(format!("{name}.{:016x}.new", u64::from_le_bytes(draw())));
    write(&mine, &new_secret()).map_err(|error| fail(&error))?;
    let linked = fs::hard_link(&mine, dir.join(&name));
    let _ = fs::remove_file(&mine);
    match linked {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(fail(&error)),
        Ok(()) | Err(_) => {}
    }
    load(&dir.join(&name))?.ok_or_else(|| fail(&"another process removed the file"))
}

/// The one line of a file. `None`: there is no such file.
pub(super) fn load(path: &Path) -> Result<Option<String>, String> {
    let fail = |why: &dyn std::fmt::Display| format!("{} holds no secret: {why}", path.display());
    let bytes = match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        found => found.map_err(|error| fail(&error))?.len(),
    };
    if bytes > BYTES_MAX {
        return Err(fail(&"it is too long"));
    }
    let text = fs::read_to_string(path).map_err(|error| fail(&error))?;
    match text.trim() {
        "" => Err(fail(&"it is empty")),
        text => Ok(Some(text.to_owned())),
    }
}

fn store(dir: &Path, text: &str) -> std::io::Result<()> {
    let new = dir.join(TEMPORARY);
    match fs::remove_file(&new) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    write(&new, text)?;
    fs::rename(&new, dir.join(FILE))?;
    fs::File::open(dir)?.sync_all()
}

fn write(path: &Path, text: &str) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    writeln!(file, "{text}")?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_of_one_machine_that_start_at_once_find_one_secret() {
        let cluster = u128::from_le_bytes(draw());
        let asked: Vec<_> =
            (0..8).map(|_| std::thread::spawn(move || of_machine(cluster).unwrap())).collect();
        let mut found: Vec<String> = asked.into_iter().map(|it| it.join().unwrap()).collect();
        found.dedup();
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].len(), 64);
    }
}
