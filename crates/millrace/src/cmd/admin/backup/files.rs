//! The files of a backup.
//!
//! ```text
//!   MANIFEST      JSON, and a last line with the SHA-256 of what is before it; written last
//!   UNFINISHED    there until everything else is: a directory with it is no backup
//!   group-0, …    for each group the stream of a snapshot (cluster::snapshot): the state, then the messages
//! ```
#![allow(clippy::disallowed_methods, reason = "a command reads and writes files")]

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufReader, Read, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use cluster::BackupGroup;
use machine::GroupId;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// Version of all of this.
pub(crate) const FORMAT: u32 = 1;

const MANIFEST: &str = "MANIFEST";
const MANIFEST_DRAFT: &str = "MANIFEST.new";
const UNFINISHED: &str = "UNFINISHED";
const UNFINISHED_TEXT: &str =
    "millrace backup writes into this directory, or was stopped while it did: this is no backup.\n";
/// Bytes of a manifest: of more groups than a cluster has.
const MANIFEST_BYTES_MAX: u64 = 64 << 20;
const CHECKSUM: &str = "sha256 ";

/// What a backup is of, and what must be in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    pub(crate) format: u32,
    /// The program that wrote it.
    pub(crate) millrace: String,
    /// Drawn for this backup.
    pub(crate) backup: String,
    /// The cluster that it is of.
    pub(crate) cluster: String,
    /// What that cluster had agreed on.
    pub(crate) version: u64,
    pub(crate) begun_ms: u64,
    pub(crate) ended_ms: u64,
    /// By number: the catalog's first.
    pub(crate) groups: Vec<GroupFile>,
}

/// What a manifest of any format has.
#[derive(Deserialize)]
struct Formatted {
    format: u32,
}

/// A group of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GroupFile {
    pub(crate) group: u32,
    pub(crate) index: u64,
    pub(crate) term: u64,
    pub(crate) bytes: u64,
    pub(crate) sha256: String,
}

/// A backup that is being written.
pub(crate) struct Draft {
    dir: PathBuf,
}

/// A group's file that is being written.
pub(crate) struct Writing {
    file: File,
    path: PathBuf,
    bytes: u64,
    hash: Sha256,
}

impl Manifest {
    /// Of all groups.
    pub(crate) fn bytes(&self) -> u64 {
        self.groups.iter().map(|group| group.bytes).sum()
    }

    fn encode(&self) -> Result<String, String> {
        let text = serde_json::to_string_pretty(self).map_err(|error| error.to_string())? + "\n";
        let hash = hex(&Sha256::digest(&text));
        Ok(format!("{text}{CHECKSUM}{hash}\n"))
    }

    fn decode(text: &str) -> Result<Self, String> {
        let (body, checksum) = text.rsplit_once(CHECKSUM).ok_or("it has no checksum")?;
        if checksum != format!("{}\n", hex(&Sha256::digest(body))) {
            return Err("its checksum is wrong: the backup is damaged".to_owned());
        }
        let wrong = |error: serde_json::Error| format!("it cannot be read: {error}");
        let Formatted { format } = serde_json::from_str(body).map_err(wrong)?;
        if format != FORMAT {
            return Err(format!(
                "the backup has format {format}, and this program reads format {FORMAT}: use the program that made \
                 the backup, or a newer one"
            ));
        }
        serde_json::from_str(body).map_err(wrong)
    }
}

/// The manifest of a finished backup.
///
/// # Errors
/// A sentence that says why it is none.
pub(crate) fn load(dir: &Path) -> Result<Manifest, String> {
    let shown = dir.display();
    if fs::symlink_metadata(dir.join(UNFINISHED)).is_ok() {
        return Err(format!(
            "the backup in {shown} is not finished: it is still being made, or was stopped. Make another, and remove \
             this directory"
        ));
    }
    let path = dir.join(MANIFEST);
    let fail = |why: String| format!("{}: {why}", path.display());
    let file = File::open(&path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => format!("{shown} is no backup: it has no file {MANIFEST}"),
        _ => fail(error.to_string()),
    })?;
    let mut text = String::new();
    file.take(MANIFEST_BYTES_MAX)
        .read_to_string(&mut text)
        .map_err(|error| fail(format!("{error}: the backup is damaged")))?;
    let manifest = Manifest::decode(&text).map_err(fail)?;
    let numbers: Vec<u32> = manifest.groups.iter().map(|group| group.group).collect();
    if numbers.first() != Some(&0) || !numbers.is_sorted_by(|one, next| one < next) {
        return Err(fail("it does not begin with the catalog, or names a group twice".to_owned()));
    }
    Ok(manifest)
}

impl GroupFile {
    fn path(&self, dir: &Path) -> PathBuf {
        dir.join(name(self.group))
    }

    /// Reads all of it, and compares it with what was written.
    pub(crate) fn check(&self, dir: &Path) -> Result<(), String> {
        let path = self.path(dir);
        let fail = |why: &str| format!("the backup is damaged: {}: {why}", path.display());
        let mut file = File::open(&path).map_err(|error| fail(&error.to_string()))?;
        let mut hash = Sha256::new();
        let bytes = io::copy(&mut file, &mut hash).map_err(|error| fail(&error.to_string()))?;
        if bytes != self.bytes {
            return Err(fail(&format!("it has {bytes} bytes, and had {}", self.bytes)));
        }
        if hex(&hash.finalize()) != self.sha256 {
            return Err(fail("its SHA-256 is not that of what was written"));
        }
        Ok(())
    }

    /// To be read after [`GroupFile::check`].
    pub(crate) fn open(&self, dir: &Path) -> Result<BackupGroup, String> {
        let path = self.path(dir);
        let file = File::open(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(BackupGroup {
            group: GroupId(self.group),
            index: self.index,
            term: self.term,
            stream: Box::new(BufReader::new(file)),
        })
    }
}

impl Draft {
    /// Takes an empty directory, or makes one that only its owner may look into.
    pub(crate) fn begin(dir: &Path) -> Result<Self, String> {
        let shown = dir.display();
        let fail = |error: io::Error| format!("{shown} cannot be written: {error}");
        DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(fail)?;
        if fs::read_dir(dir).map_err(fail)?.next().is_some() {
            return Err(format!("{shown} is not empty: a backup gets a directory of its own"));
        }
        let mut file = create(&dir.join(UNFINISHED)).map_err(fail)?;
        file.write_all(UNFINISHED_TEXT.as_bytes()).and_then(|()| file.sync_all()).map_err(fail)?;
        sync(dir).map_err(fail)?;
        Ok(Self { dir: dir.to_owned() })
    }

    pub(crate) fn group(&self, group: u32) -> Result<Writing, String> {
        let path = self.dir.join(name(group));
        let file = create(&path).map_err(|error| unwritten(&path, &error))?;
        Ok(Writing { file, path, bytes: 0, hash: Sha256::new() })
    }

    /// Everything is there.
    pub(crate) fn finish(self, manifest: &Manifest) -> Result<(), String> {
        let path = self.dir.join(MANIFEST_DRAFT);
        let fail = |error: io::Error| unwritten(&path, &error);
        let mut file = create(&path).map_err(fail)?;
        file.write_all(manifest.encode()?.as_bytes()).map_err(fail)?;
        file.sync_all().map_err(fail)?;
        fs::rename(&path, self.dir.join(MANIFEST)).map_err(fail)?;
        // The manifest must be there before the mark is not.
        sync(&self.dir).map_err(fail)?;
        fs::remove_file(self.dir.join(UNFINISHED)).map_err(fail)?;
        sync(&self.dir).map_err(fail)
    }
}

impl Writing {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.file.write_all(bytes).map_err(|error| unwritten(&self.path, &error))?;
        self.hash.update(bytes);
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Its bytes, and their SHA-256.
    pub(crate) fn finish(self) -> Result<(u64, String), String> {
        self.file.sync_all().map_err(|error| unwritten(&self.path, &error))?;
        Ok((self.bytes, hex(&self.hash.finalize())))
    }
}

fn unwritten(path: &Path, error: &io::Error) -> String {
    format!(
        "{} cannot be written: {error}. The backup is not finished: remove its directory, and make another where there \
         is room",
        path.display()
    )
}

fn name(group: u32) -> String {
    format!("group-{group}")
}

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

fn sync(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        Manifest {
            format: FORMAT,
            millrace: "0.1.0".to_owned(),
            backup: "00000000000000aa".to_owned(),
            cluster: "0000000000000000000000000000feed".to_owned(),
            version: 9,
            begun_ms: 1,
            ended_ms: 2,
            groups: vec![GroupFile {
                group: 0,
                index: 7,
                term: 2,
                bytes: 3,
                sha256: "ab".to_owned(),
            }],
        }
    }

    #[test]
    fn a_manifest_reads_back_and_a_changed_digit_is_noticed() {
        let text = manifest().encode().unwrap();
        assert_eq!(Manifest::decode(&text), Ok(manifest()));
        let changed = text.replace("\"index\": 7", "\"index\": 8");
        assert!(Manifest::decode(&changed).unwrap_err().contains("damaged"));
        assert!(Manifest::decode("{}\n").is_err());
    }

    #[test]
    fn a_backup_of_a_newer_format_is_refused_with_what_to_do() {
        let text = Manifest { format: 2, ..manifest() }.encode().unwrap();
        assert!(Manifest::decode(&text).unwrap_err().contains("a newer one"));
    }

    #[test]
    fn a_directory_is_a_backup_once_it_is_finished() {
        let dir =
            std::env::temp_dir().join(format!("millrace-backup-files-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        let draft = Draft::begin(&dir).unwrap();
        assert!(Draft::begin(&dir).is_err(), "it is taken");
        let mut group = draft.group(0).unwrap();
        group.write(b"abc").unwrap();
        let (bytes, sha256) = group.finish().unwrap();
        let file = GroupFile { bytes, sha256, ..manifest().groups.remove(0) };
        assert!(load(&dir).unwrap_err().contains("not finished"));
        draft.finish(&Manifest { groups: vec![file.clone()], ..manifest() }).unwrap();
        assert_eq!(load(&dir).unwrap().groups, std::slice::from_ref(&file));
        assert_eq!(file.check(&dir), Ok(()));
        fs::write(dir.join("group-0"), b"abd").unwrap();
        assert!(file.check(&dir).unwrap_err().contains("damaged"));
        fs::remove_dir_all(&dir).unwrap();
    }
}
