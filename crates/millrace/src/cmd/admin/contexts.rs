//! Contexts: names for clusters, each with who asks it and how. They are in a file of the user.
#![allow(clippy::disallowed_methods, reason = "a command reads a file of its user")]

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::failure::Failure;
use super::private_file;

/// Bytes of the file.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Letters of a context's name.
const NAME_LETTERS_MAX: usize = 64;

/// What the file holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Contexts {
    /// The one that counts if nobody names another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) current: Option<String>,
    #[serde(default)]
    pub(crate) contexts: BTreeMap<String, Context>,
}

/// A cluster, and who asks it.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Context {
    /// Without a password.
    pub(crate) url: String,
    /// Where the password is: in this file, in another, in a variable. None of them: it is asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) password: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) password_file: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) password_env: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cacertfile: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) certfile: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) keyfile: Option<PathBuf>,
}

impl std::fmt::Debug for Context {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Context").field("url", &self.url).finish_non_exhaustive()
    }
}

impl Context {
    /// Where its password is, in a word.
    pub(crate) fn password_source(&self) -> String {
        match (&self.password, &self.password_file, &self.password_env) {
            (Some(_), _, _) => "kept".to_owned(),
            (None, Some(file), _) => format!("file {}", file.display()),
            (None, None, Some(variable)) => format!("variable {variable}"),
            (None, None, None) => "asked for".to_owned(),
        }
    }
}

impl Contexts {
    /// What the user's file holds; nothing if there is none. A unit or a container may have no home at all.
    pub(crate) fn load() -> Result<Self, Failure> {
        place().map_or_else(|| Ok(Self::default()), |path| Self::read(&path))
    }

    fn read(path: &Path) -> Result<Self, Failure> {
        let name = path.display();
        let wrong = |why: String| Failure::Usage(format!("{name}: {why}"));
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(wrong(format!("cannot be read: {error}"))),
        };
        let mode = file.metadata().map_err(|error| wrong(error.to_string()))?.permissions().mode();
        if mode & 0o077 != 0 {
            return Err(wrong(format!(
                "others may read or write it (mode {:03o}), and it may hold passwords: run `chmod 600 {name}`",
                mode & 0o777
            )));
        }
        let mut text = String::new();
        let read = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text);
        read.map_err(|error| wrong(format!("cannot be read: {error}")))?;
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(wrong(format!("it has more than {FILE_BYTES_MAX} bytes")));
        }
        // The error's own words would repeat a line, which may hold a password.
        toml::from_str(&text).map_err(|error: toml::de::Error| {
            let line = error.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
            wrong(format!("line {line}: {}", error.message()))
        })
    }

    /// Writes them into the user's file.
    pub(crate) fn store(&self) -> Result<(), Failure> {
        let path = place().ok_or_else(|| {
            Failure::Usage("there is no home for contexts: set HOME or XDG_CONFIG_HOME".to_owned())
        })?;
        let failed = |why: String| Failure::Usage(format!("{}: {why}", path.display()));
        let text = toml::to_string(self).map_err(|error| failed(error.to_string()))?;
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(failed(format!("it would have more than {FILE_BYTES_MAX} bytes")));
        }
        if let Some(folder) = path.parent() {
            private_file::make_folder(folder).map_err(|error| failed(error.to_string()))?;
        }
        private_file::write(&path, text.as_bytes()).map_err(|error| failed(error.to_string()))
    }

    /// The one of this name.
    pub(crate) fn find(&self, name: &str) -> Result<&Context, Failure> {
        self.contexts.get(name).ok_or_else(|| {
            let known: Vec<&str> = self.contexts.keys().map(String::as_str).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            Failure::Usage(format!(
                "there is no context `{name}`; known: {known}. `millrace context add NAME --url URL` makes one"
            ))
        })
    }
}

/// Reads a name as the command line gives it.
pub(crate) fn name(text: &str) -> Result<String, String> {
    let is_fine = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    match !text.is_empty() && text.len() <= NAME_LETTERS_MAX && text.chars().all(is_fine) {
        true => Ok(text.to_owned()),
        false => Err(format!("a name has up to {NAME_LETTERS_MAX} letters, digits, and . - _")),
    }
}

/// Where the user's file is. `None`: the user has no home.
fn place() -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let folder = variable("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let folder = folder.or_else(|| Some(PathBuf::from(variable("HOME")?).join(".config")));
    Some(folder?.join("millrace").join("contexts.toml"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_file_is_told_by_its_line_and_without_its_passwords() {
        let path = std::env::temp_dir().join(format!("millrace-contexts-{}", std::process::id()));
        private_file::write(&path, b"[contexts.a]\nurl = \"http://x\"\npassword = hunter2\n")
            .unwrap();
        let Err(Failure::Usage(told)) = Contexts::read(&path) else { panic!("it was read") };
        assert!(told.contains("line 3") && !told.contains("hunter2"), "{told}");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        let Err(Failure::Usage(told)) = Contexts::read(&path) else { panic!("it was read") };
        assert!(told.contains("chmod 600"), "{told}");
        std::fs::remove_file(&path).unwrap();
        assert_eq!(Contexts::read(&path), Ok(Contexts::default()));
    }

    #[test]
    fn what_is_written_is_read() {
        let context = Context {
            url: "http://ann@host:15672".to_owned(),
            password: Some("secret".to_owned()),
            ..Context::default()
        };
        let contexts = Contexts {
            current: Some("prod".to_owned()),
            contexts: BTreeMap::from([("prod".to_owned(), context)]),
        };
        let text = toml::to_string(&contexts).unwrap();
        assert_eq!(toml::from_str::<Contexts>(&text).unwrap(), contexts);
        assert!(!format!("{contexts:?}").contains("secret"));
    }

    #[test]
    fn names_are_plain() {
        assert!(name("prod-1.eu_west").is_ok());
        for wrong in ["", "a b", "a/b", "\u{1b}", &"x".repeat(65)] {
            assert!(name(wrong).is_err(), "{wrong}");
        }
    }
}
