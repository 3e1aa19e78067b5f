//! Files that only their owner may read: contexts, definitions.
#![allow(clippy::disallowed_methods, reason = "a command writes files")]

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

/// Writes a file as a whole: whoever reads it meanwhile sees the old one or the new one. Nobody but the owner may read
/// it.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // The name of a device or folder is never given to a file: as root, that would replace /dev/null.
    if fs::metadata(path).is_ok_and(|there| !there.is_file()) {
        return Err(io::Error::other("what is there is no file"));
    }
    let name = path.file_name().ok_or_else(|| io::Error::other("it is no file's name"))?;
    let mut draft = name.to_owned();
    draft.push(format!(".{}.tmp", std::process::id()));
    let draft = path.with_file_name(draft);
    // Left by a process of the same number that was killed.
    let _ = fs::remove_file(&draft);
    let written = fill(&draft, bytes).and_then(|()| fs::rename(&draft, path));
    if written.is_err() {
        let _ = fs::remove_file(&draft);
    }
    written
}

fn fill(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file: File = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Makes a folder that only its owner may look into, and those above it.
pub(crate) fn make_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_file_is_its_owners_alone_also_when_it_was_not_before() {
        let folder = std::env::temp_dir().join(format!("millrace-private-{}", std::process::id()));
        let path = folder.join("a").join("contexts.toml");
        make_folder(path.parent().unwrap()).unwrap();
        fs::write(&path, "old").unwrap();
        write(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "no draft is left");
        fs::remove_dir_all(&folder).unwrap();
    }
}
