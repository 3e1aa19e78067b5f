//! Where PostgreSQL's programs are, and the directory that every cluster is a copy of.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;

use super::account::{self, Account};
use super::{COUNT, Error};

/// Where Debian keeps each version's programs.
const DEBIAN: &str = "/usr/lib/postgresql";

#[derive(Clone, Debug)]
pub(super) struct Binaries {
    folder: PathBuf,
}

impl Binaries {
    pub(super) fn program(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

/// The newest version of Debian's, else what `pg_config` tells.
pub(super) fn find() -> Result<Binaries, Error> {
    let versions = std::fs::read_dir(DEBIAN).into_iter().flatten().flatten();
    let versions = versions.filter_map(|entry| {
        let number: f32 = entry.file_name().to_str()?.parse().ok()?;
        Some((number, entry.path().join("bin")))
    });
    let has_server = |folder: &Path| folder.join("initdb").exists();
    let newest = versions
        .filter(|(_, folder)| has_server(folder))
        .max_by(|(one, _), (other, _)| one.total_cmp(other));
    if let Some((_, folder)) = newest {
        return Ok(Binaries { folder });
    }
    let told = Command::new("pg_config").arg("--bindir").output().ok();
    let told = told.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    match told.map(PathBuf::from).filter(|folder| has_server(folder)) {
        Some(folder) => Ok(Binaries { folder }),
        None => Err(Error::Missing(format!("there is no PostgreSQL in {DEBIAN} nor in the path"))),
    }
}

/// Copies what `initdb` makes to `to`. It is made once and left for whoever comes next.
pub(super) fn copy_of_template(
    binaries: &Binaries,
    account: Option<Account>,
    to: &Path,
) -> Result<(), Error> {
    let version = run(Command::new(binaries.program("postgres")).arg("--version"))?;
    let version: String = version.chars().filter(|c| c.is_ascii_digit() || *c == '.').collect();
    let user = rustix::process::geteuid().as_raw();
    let name = format!("millrace-postgres-template-{version}-{user}");
    let template = std::env::temp_dir().join(name);
    if !template.join("PG_VERSION").exists() {
        make_template(binaries, account, &template)?;
    }
    run(Command::new("cp").args(["-a", "--reflink=auto"]).arg(&template).arg(to))?;
    Ok(std::fs::set_permissions(to, std::fs::Permissions::from_mode(0o700))?)
}

/// Several may make it at a time: the first to be ready wins.
fn make_template(
    binaries: &Binaries,
    account: Option<Account>,
    template: &Path,
) -> Result<(), Error> {
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let draft = template.with_extension(format!("draft-{}-{count}", std::process::id()));
    std::fs::create_dir_all(&draft)?;
    account::give(&draft, account)?;
    let mut initdb = account::command(&binaries.program("initdb"), account);
    initdb.args(["--no-sync", "--auth=trust", "--username=postgres", "--encoding=UTF8"]);
    run(initdb.args(["--locale=C", "--pgdata"]).arg(&draft))?;
    let outcome = std::fs::rename(&draft, template);
    if outcome.is_err() && template.join("PG_VERSION").exists() {
        return Ok(std::fs::remove_dir_all(&draft)?);
    }
    Ok(outcome?)
}

fn run(command: &mut Command) -> Result<String, Error> {
    let output = command.stdin(Stdio::null()).output()?;
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        return Err(Error::Failed(format!("{command:?}: {}\n{complaint}", output.status)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
