//! Whose data directory this is: the `IDENTITY` file.
//!
//! Text, so that a person can read it: format version, cluster, node, incarnation, checksum. It
//! is written once, before anything else, and locked while the directory is in use.

use std::io::{self, IoSlice};

use crate::disk::{Access, Disk, DiskFile};
use crate::error::{Context, Error};
use crate::limits::IDENTITY_BYTES_MAX;

/// Version of all formats in the directory taken together. A larger one is refused.
pub const FORMAT_VERSION: u32 = 1;

pub(crate) const IDENTITY_FILE: &str = "IDENTITY";
pub(crate) const IDENTITY_TEMPORARY: &str = "IDENTITY.new";
const TITLE: &str = "millrace data directory";

/// Whose log this is. Part of every checksum, so that a block of another cluster, or of this
/// node's earlier life, never passes for one of this log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The cluster, drawn when it was made.
    pub cluster: u128,
    /// The node in the cluster.
    pub node: u64,
    /// Grows whenever the node starts with an empty directory.
    pub incarnation: u64,
}

impl Identity {
    /// Reads the directory's identity; `None` if the directory was never used.
    pub fn load<D: Disk>(disk: &D) -> Result<Option<Self>, Error> {
        let file = match disk.open(IDENTITY_FILE, Access::Read) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.at("open", IDENTITY_FILE)?,
        };
        let mut text = vec![0; IDENTITY_BYTES_MAX];
        let count = file.read_at(0, &mut text).at("read", IDENTITY_FILE)?;
        text.truncate(count);
        Self::decode(&text).map(Some)
    }

    /// Writes the identity of a new directory and makes it durable.
    pub(crate) fn store<D: Disk>(&self, disk: &D) -> Result<(), Error> {
        let file = disk.create(IDENTITY_TEMPORARY).at("create", IDENTITY_TEMPORARY)?;
        let text = self.encode();
        file.write_at(0, &[IoSlice::new(text.as_bytes())]).at("write", IDENTITY_TEMPORARY)?;
        file.sync_data().at("sync", IDENTITY_TEMPORARY)?;
        disk.rename(IDENTITY_TEMPORARY, IDENTITY_FILE).at("rename", IDENTITY_TEMPORARY)?;
        disk.sync_dir("").at("sync", "the data directory")
    }

    /// Refuses a directory of another cluster, node or life.
    pub(crate) fn expect(&self, wanted: &Identity) -> Result<(), Error> {
        if self == wanted {
            return Ok(());
        }
        let why = format!(
            "this directory belongs to {self}, but this node is {wanted}: start the node with its own directory"
        );
        Err(Error::refused(IDENTITY_FILE, why))
    }

    fn encode(&self) -> String {
        let body = format!(
            "{TITLE}\nformat {FORMAT_VERSION}\ncluster {:032x}\nnode {}\nincarnation {}\n",
            self.cluster, self.node, self.incarnation
        );
        let checksum = crc32c::crc32c(body.as_bytes());
        format!("{body}checksum {checksum:08x}\n")
    }

    fn decode(text: &[u8]) -> Result<Self, Error> {
        let damaged = |what: &str| Error::damaged(IDENTITY_FILE, 0, what);
        let text = str::from_utf8(text).map_err(|_| damaged("it is not text"))?;
        let body_bytes = text.find("checksum ").ok_or_else(|| damaged("it has no checksum"))?;
        let (body, checksum) = text.split_at(body_bytes);
        if checksum != format!("checksum {:08x}\n", crc32c::crc32c(body.as_bytes())) {
            return Err(damaged("its checksum is wrong"));
        }
        let mut lines = body.lines();
        if lines.next() != Some(TITLE) {
            return Err(Error::refused(IDENTITY_FILE, "this is not a data directory of Millrace"));
        }
        let mut field = |name: &str| {
            let line = lines.next().and_then(|line| line.strip_prefix(name));
            line.map(str::trim).ok_or_else(|| damaged(&format!("it has no {name}")))
        };
        let format = field("format")?.parse::<u32>().map_err(|_| damaged("bad format"))?;
        if format != FORMAT_VERSION {
            let why = format!(
                "the directory has format {format}, and this program reads format {FORMAT_VERSION}: use the program \
                 that wrote the directory, or a newer one"
            );
            return Err(Error::refused(IDENTITY_FILE, why));
        }
        let cluster = field("cluster")?;
        let cluster = u128::from_str_radix(cluster, 16).map_err(|_| damaged("bad cluster"))?;
        let node = field("node")?.parse().map_err(|_| damaged("bad node"))?;
        let incarnation = field("incarnation")?.parse().map_err(|_| damaged("bad incarnation"))?;
        Ok(Self { cluster, node, incarnation })
    }
}

impl std::fmt::Display for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Identity { cluster, node, incarnation } = self;
        write!(f, "cluster {cluster:032x} node {node} incarnation {incarnation}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: Identity = Identity { cluster: 0xfeed, node: 2, incarnation: 7 };

    #[test]
    fn an_identity_reads_back_as_it_was_written() {
        assert_eq!(Identity::decode(OURS.encode().as_bytes()), Ok(OURS));
    }

    #[test]
    fn the_text_of_format_1_does_not_change() {
        let text = "millrace data directory\nformat 1\ncluster 0000000000000000000000000000feed\n\
                    node 2\nincarnation 7\nchecksum d8ec6552\n";
        assert_eq!(OURS.encode(), text);
    }

    #[test]
    fn a_changed_digit_is_noticed() {
        let text = OURS.encode().replace("node 2", "node 3");
        assert!(matches!(Identity::decode(text.as_bytes()), Err(Error::Damaged { .. })));
    }

    #[test]
    fn a_newer_format_is_refused_with_what_to_do() {
        let body = OURS.encode().replace("format 1", "format 2");
        let body = &body[..body.find("checksum").unwrap()];
        let text = format!("{body}checksum {:08x}\n", crc32c::crc32c(body.as_bytes()));
        let error = Identity::decode(text.as_bytes()).unwrap_err();
        assert!(error.to_string().contains("a newer one"), "{error}");
    }

    #[test]
    fn another_clusters_directory_is_refused() {
        let theirs = Identity { cluster: 0xbeef, ..OURS };
        assert!(matches!(theirs.expect(&OURS), Err(Error::Refused { .. })));
        assert_eq!(OURS.expect(&OURS), Ok(()));
    }
}
