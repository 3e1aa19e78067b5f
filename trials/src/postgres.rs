//! A PostgreSQL cluster of one's own: made in a directory that goes with it, on a private port.
//!
//! It is as durable as a real one (`fsync` is on), and can be killed as a real one can: [`Postgres::kill9`]
//! and [`Postgres::start_again`]. `initdb` runs once for a machine; every cluster is a copy of what
//! it made. PostgreSQL refuses to run as root, so root starts it as the user `postgres`.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "starts processes in directories of their own, and waits for them"
)]

mod account;
mod binaries;
mod processes;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tokio_postgres::NoTls;

use account::Account;
use binaries::Binaries;

use crate::ports;

/// Why there is no cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// PostgreSQL is not installed.
    Missing(String),
    Failed(String),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Missing(what) => write!(f, "{what}: install it with `cargo xtask setup`"),
            Self::Failed(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for Error {}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

/// How a cluster is made, beyond what all of them have.
#[derive(Clone, Debug, Default)]
pub struct Options {
    parent: Option<PathBuf>,
    settings: Vec<(String, String)>,
    tls: Option<(PathBuf, PathBuf)>,
}

impl Options {
    /// One line of `postgresql.conf`. Later ones win.
    pub fn set(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Makes the cluster's directory in this one, which everybody must be able to enter.
    pub fn below(mut self, parent: &Path) -> Self {
        self.parent = Some(parent.to_owned());
        self
    }

    /// Speaks TLS too, with this certificate and its key (PEM).
    pub fn tls(mut self, certificate: &Path, key: &Path) -> Self {
        self.tls = Some((certificate.to_owned(), key.to_owned()));
        self
    }
}

/// A cluster. Dropping it stops it and removes all of it.
#[derive(Debug)]
pub struct Postgres {
    binaries: Binaries,
    account: Option<Account>,
    dir: PathBuf,
    port: u16,
    child: Option<Child>,
}

/// Clusters of this process so far, for names of their own.
static COUNT: AtomicU32 = AtomicU32::new(0);
/// How long a start may take: recovery after a crash is part of it.
const START_MAX: Duration = Duration::from_secs(60);
const STOP_MAX: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(5);

impl Postgres {
    /// Makes a cluster and starts it; it takes connections when this comes back.
    ///
    /// # Errors
    /// [`Error::Missing`] where PostgreSQL is not installed.
    pub fn start(options: &Options) -> Result<Self, Error> {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let binaries = binaries::find()?;
        let account = account::needed()?;
        let parent = options.parent.clone().unwrap_or_else(std::env::temp_dir);
        let dir = parent.join(format!("millrace-postgres-{}-{count}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir)?;
        let mut cluster = Self { binaries, account, dir, port: 0, child: None };
        cluster.own(&cluster.dir)?;
        binaries::copy_of_template(&cluster.binaries, cluster.account, &cluster.data())?;
        cluster.make_ready(options)?;
        cluster.own(&cluster.data())?;
        cluster.port = ports::free()?;
        cluster.start_again()?;
        Ok(cluster)
    }

    fn make_ready(&self, options: &Options) -> Result<(), Error> {
        let mut settings: Vec<(String, String)> = [
            ("listen_addresses", "127.0.0.1"),
            ("unix_socket_directories", ""),
            ("wal_level", "logical"),
            ("max_replication_slots", "10"),
            ("max_wal_senders", "10"),
            ("max_connections", "200"),
            // What a killed cluster leaves behind lies in its directory and goes with it.
            ("dynamic_shared_memory_type", "mmap"),
            ("lc_messages", "C"),
            ("log_line_prefix", "%m [%p] %q%a "),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec();
        if let Some((certificate, key)) = &options.tls {
            for (name, from) in [("server.crt", certificate), ("server.key", key)] {
                let to = self.data().join(name);
                std::fs::copy(from, &to)?;
                only_for_the_owner(&to)?;
            }
            settings.push(("ssl".into(), "on".into()));
        }
        settings.extend(options.settings.iter().cloned());
        let lines = settings.iter().map(|(name, value)| {
            let value = value.replace('\'', "''");
            format!("{name} = '{value}'\n")
        });
        let text: String = lines.collect();
        Ok(std::fs::write(self.data().join("postgresql.auto.conf"), text)?)
    }

    /// Starts it on what is there and waits until it takes connections.
    ///
    /// # Errors
    /// It does not start: the end of its log is told.
    pub fn start_again(&mut self) -> Result<(), Error> {
        assert!(self.child.is_none(), "one postmaster at a time on one directory");
        let log = File::options().create(true).append(true).open(self.log())?;
        let mut command = self.command("postgres");
        command.arg("-D").arg(self.data()).args(["-p", &self.port.to_string()]);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let mut child = command.spawn()?;
        let pid = child.id();
        let begun = Instant::now();
        loop {
            if let Some(status) = child.try_wait()? {
                return Err(self.failed(&format!("PostgreSQL does not start: {status}")));
            }
            if self.is_ready(pid) {
                self.child = Some(child);
                return Ok(());
            }
            if begun.elapsed() > START_MAX {
                let _ = processes::kill_with_children(pid);
                let _ = child.wait();
                return Err(self.failed(&format!("PostgreSQL is not ready after {START_MAX:?}")));
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// What `pg_ctl` looks at: the last line of the file that the postmaster writes.
    fn is_ready(&self, pid: u32) -> bool {
        let file = std::fs::read_to_string(self.data().join("postmaster.pid")).unwrap_or_default();
        let mut lines = file.lines();
        let is_its = lines.next().is_some_and(|line| line.trim() == pid.to_string());
        is_its && lines.next_back().is_some_and(|line| line.trim() == "ready")
    }

    /// `kill -9` of the postmaster and of every process it has, and waits until all are gone.
    ///
    /// # Errors
    /// They are still there after a while.
    pub fn kill9(&mut self) -> Result<(), Error> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        let others = processes::kill_with_children(child.id());
        child.wait()?;
        let begun = Instant::now();
        while others.iter().any(processes::Process::is_alive) {
            if begun.elapsed() > STOP_MAX {
                return Err(self.failed("processes of a killed PostgreSQL do not go"));
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Stops it cleanly; connections are cut. [`Postgres::start_again`] goes on.
    ///
    /// # Errors
    /// It does not stop in time, or complains.
    pub fn stop(&mut self) -> Result<(), Error> {
        let Some(status) = self.end(rustix::process::Signal::INT)? else { return Ok(()) };
        if status.success() {
            return Ok(());
        }
        Err(self.failed(&format!("PostgreSQL ends with {status}")))
    }

    fn end(
        &mut self,
        signal: rustix::process::Signal,
    ) -> Result<Option<std::process::ExitStatus>, Error> {
        let Some(child) = &mut self.child else { return Ok(None) };
        processes::signal(child.id(), signal);
        let begun = Instant::now();
        while begun.elapsed() < STOP_MAX {
            if let Some(status) = child.try_wait()? {
                self.child = None;
                return Ok(Some(status));
            }
            std::thread::sleep(PAUSE);
        }
        Err(self.failed(&format!("PostgreSQL still runs after {STOP_MAX:?}")))
    }

    /// Where clients reach it: the superuser `postgres` without a password.
    pub fn url(&self) -> String {
        self.url_of("postgres")
    }

    /// The same, for another database of the cluster.
    pub fn url_of(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The postmaster's; backends are its children.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// The data directory.
    pub fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// What the server says.
    pub fn log(&self) -> PathBuf {
        self.dir.join("postgres.log")
    }

    /// Runs SQL by `psql` and gives what it prints: a line for each row, `|` between columns.
    ///
    /// # Errors
    /// What `psql` complains about.
    pub fn psql(&self, sql: &str) -> Result<String, Error> {
        self.psql_in("postgres", sql)
    }

    /// The same, in another database of the cluster.
    ///
    /// # Errors
    /// As [`Postgres::psql`].
    pub fn psql_in(&self, database: &str, sql: &str) -> Result<String, Error> {
        let mut command = Command::new(self.binaries.program("psql"));
        command.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d"]);
        command.arg(self.url_of(database)).args(["-c", sql]).stdin(Stdio::null());
        let output = command.output()?;
        if !output.status.success() {
            let complaint = String::from_utf8_lossy(&output.stderr);
            return Err(Error::Failed(format!("psql: {}\n{sql}", complaint.trim())));
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
    }

    /// A connection, driven by a task of its own.
    ///
    /// # Errors
    /// It does not come about.
    pub async fn connect(&self) -> Result<tokio_postgres::Client, tokio_postgres::Error> {
        connect(&self.url()).await
    }

    fn failed(&self, what: &str) -> Error {
        const LINES: usize = 15;
        let text = std::fs::read(self.log()).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        let last = lines[lines.len().saturating_sub(LINES)..].join("\n");
        Error::Failed(format!("{what}; {}:\n{last}", self.log().display()))
    }

    fn command(&self, program: &str) -> Command {
        account::command(&self.binaries.program(program), self.account)
    }

    fn own(&self, path: &Path) -> Result<(), Error> {
        account::give(path, self.account)
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // Killed outright it would leave a piece of shared memory with the kernel.
        if self.end(rustix::process::Signal::QUIT).is_err() {
            let _ = self.kill9();
        }
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// A connection to any database by URL, driven by a task of its own.
///
/// # Errors
/// It does not come about.
pub async fn connect(url: &str) -> Result<tokio_postgres::Client, tokio_postgres::Error> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(async move {
        // Whoever uses the client sees the error, too.
        let _ = connection.await;
    });
    Ok(client)
}

fn only_for_the_owner(path: &Path) -> Result<(), Error> {
    use std::os::unix::fs::PermissionsExt as _;
    Ok(std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?)
}

#[cfg(test)]
mod tests;
