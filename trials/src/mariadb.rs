//! A MariaDB server of one's own: in a directory that goes with it, on a private port, with the durability that it has by
//! default. It can be killed as a real one can: [`MariaDb::kill9`] and [`MariaDb::start_again`].
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "starts processes in directories of their own, and waits for them"
)]

use std::fs::{File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::ports;

/// Where Debian puts them.
const SERVER: &str = "/usr/sbin/mariadbd";
const INSTALLER: &str = "/usr/bin/mariadb-install-db";
const CLIENT: &str = "/usr/bin/mariadb";
/// Where a server keeps its temporary tables, in its directory.
const SCRATCH: &str = "tmp";
/// How long a start may take, on a machine that has much else to do.
const START_MAX: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(50);

/// A server with a database `shop` and a user `root` without a password. Dropping it ends it and removes all of it.
#[derive(Debug)]
pub struct MariaDb {
    dir: PathBuf,
    port: u16,
    /// More options of the server.
    options: Vec<String>,
    child: Option<Child>,
}

impl MariaDb {
    /// A fresh one; none: MariaDB is not installed.
    ///
    /// # Errors
    /// It does not come up.
    pub fn start() -> io::Result<Option<Self>> {
        Self::start_with(&[])
    }

    /// The same, with options of one's own.
    ///
    /// # Errors
    /// As [`MariaDb::start`].
    pub fn start_with(options: &[String]) -> io::Result<Option<Self>> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        if [SERVER, INSTALLER, CLIENT].iter().any(|program| !Path::new(program).exists()) {
            return Ok(None);
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir =
            std::env::temp_dir().join(format!("millrace-mariadb-{}-{number}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(dir.join(SCRATCH))?;
        // The server's user writes there, and it is not the one that made it.
        std::fs::set_permissions(dir.join(SCRATCH), Permissions::from_mode(0o1777))?;
        let options = options.to_vec();
        let mut server = Self { dir, port: ports::free()?, options, child: None };
        server.install()?;
        server.start_again()?;
        server.sql("mysql", "CREATE DATABASE shop")?;
        Ok(Some(server))
    }

    fn install(&self) -> io::Result<()> {
        let mut command = Command::new(INSTALLER);
        command.arg("--no-defaults").arg("--auth-root-authentication-method=normal");
        command.arg("--skip-test-db").arg("--skip-name-resolve");
        command.arg(format!("--datadir={}", self.data().display()));
        self.as_user(&mut command);
        let output = command.current_dir("/").stdin(Stdio::null()).output()?;
        match output.status.success() {
            true => Ok(()),
            false => Err(self.failed(&String::from_utf8_lossy(&output.stderr))),
        }
    }

    /// The server does not run as root: root starts it as the user of Debian's package. A server that starts removes
    /// the temporary tables of every other one in its directory for them, so each has a directory of its own.
    fn as_user(&self, command: &mut Command) {
        command.env("TMPDIR", self.dir.join(SCRATCH));
        if rustix::process::geteuid().is_root() {
            command.arg("--user=mysql");
        }
    }

    /// Starts it on what is there, and waits until it takes connections.
    ///
    /// # Errors
    /// It does not start: the end of its log is told.
    pub fn start_again(&mut self) -> io::Result<()> {
        assert!(self.child.is_none(), "one server at a time on one directory");
        let log = File::options().create(true).append(true).open(self.log())?;
        let mut command = Command::new(SERVER);
        command.arg("--no-defaults").arg("--skip-name-resolve").arg("--bind-address=127.0.0.1");
        command.arg(format!("--port={}", self.port));
        for (option, path) in
            [("datadir", "data"), ("socket", "data/socket"), ("pid-file", "data/pid")]
        {
            command.arg(format!("--{option}={}", self.dir.join(path).display()));
        }
        command.args(&self.options);
        self.as_user(&mut command);
        command.current_dir("/").stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        self.child = Some(command.spawn()?);
        let begun = Instant::now();
        while self.sql("mysql", "SELECT 1").is_err() {
            if let Some(status) = self.child.as_mut().and_then(|child| child.try_wait().ok()?) {
                return Err(self.failed(&format!("MariaDB does not start: {status}")));
            }
            if begun.elapsed() > START_MAX {
                return Err(self.failed(&format!("MariaDB is not ready after {START_MAX:?}")));
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Ends it at once.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn kill9(&mut self) -> io::Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    /// Where it listens, on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where clients reach a database of it.
    pub fn url_of(&self, database: &str) -> String {
        format!("mysql://root@127.0.0.1:{}/{database}", self.port)
    }

    /// Runs SQL by the server's own client, and gives what it prints: a line for each row, a tab between columns.
    ///
    /// # Errors
    /// What the client complains about.
    pub fn sql(&self, database: &str, sql: &str) -> io::Result<String> {
        let mut client =
            self.client(database).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let mut input = client.stdin.take().expect("it is piped");
        input.write_all(sql.as_bytes())?;
        drop(input);
        let output = client.wait_with_output()?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned()),
            false => Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned())),
        }
    }

    /// A client that reads statements from its standard input.
    pub fn client(&self, database: &str) -> Command {
        let mut command = Command::new(CLIENT);
        command.args([
            "--no-defaults",
            "--skip-column-names",
            "--batch",
            "--user=root",
            "--host=127.0.0.1",
        ]);
        command.arg("--init-command=SET time_zone = '+00:00'");
        command.arg(format!("--port={}", self.port)).arg(database).stdin(Stdio::piped());
        command
    }

    fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    fn log(&self) -> PathBuf {
        self.dir.join("server.log")
    }

    fn failed(&self, what: &str) -> io::Error {
        let log = std::fs::read_to_string(self.log()).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let last = lines[lines.len().saturating_sub(15)..].join("\n");
        io::Error::other(format!("{what}:\n{last}"))
    }
}

impl Drop for MariaDb {
    fn drop(&mut self) {
        let _ = self.kill9();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
