//! Brokers started for a test or a measurement and stopped after it: Millrace, and RabbitMQ as the
//! reference. Each has a folder of its own that is wiped first, and listens on loopback only.

use std::fs::File;
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::Outcome;
use crate::process::{cargo, command, run, target};

/// Where Debian's package keeps RabbitMQ's programs.
const RABBITMQ_PROGRAMS: &str = "/usr/lib/rabbitmq/bin";
/// How long a broker may take until it listens.
const START_MAX: Duration = Duration::from_secs(90);
/// How long a broker may take to stop when it is asked to.
const STOP_MAX: Duration = Duration::from_secs(30);
/// The HTTP API is so far above the AMQP port, as RabbitMQ has it by default.
pub(crate) const HTTP_ABOVE: u16 = 10_000;
/// AMQP under TLS is so far below the AMQP port, as RabbitMQ has it by default.
pub(crate) const TLS_BELOW: u16 = 1;
const POLL: Duration = Duration::from_millis(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Millrace,
    RabbitMq,
}

pub(crate) struct Broker {
    kind: Kind,
    child: Child,
    folder: PathBuf,
    port: u16,
    /// From the start of the process until it listened.
    pub(crate) started_in: Duration,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Millrace => "Millrace",
            Kind::RabbitMq => "RabbitMQ 3.10.8",
        }
    }

    /// As it is called on command lines and in paths.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Kind::Millrace => "millrace",
            Kind::RabbitMq => "rabbitmq",
        }
    }
}

/// Which build of Millrace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Build {
    #[default]
    Release,
    /// The one that `cargo test` has made for its own tests.
    Tested,
}

impl Build {
    pub(crate) fn millrace(self) -> PathBuf {
        target().join(match self {
            Build::Release => "release/millrace",
            Build::Tested => "debug/millrace",
        })
    }

    /// Makes sure that it is there and of today. The tested one is, after the tests.
    pub(crate) fn make(self) -> Outcome {
        match self {
            Build::Release => {
                run(&mut cargo(&["build", "--quiet", "--release", "--package", "millrace"]))
            }
            Build::Tested => Ok(()),
        }
    }
}

impl Broker {
    /// Starts a broker with nothing in it and waits until it listens on `port` of loopback.
    pub(crate) fn start(kind: Kind, folder: &Path, port: u16) -> Result<Broker, String> {
        Broker::start_build(kind, Build::Release, folder, port, None)
    }

    /// The same with another build, where it is Millrace. `tls`: a folder of certificates to serve TLS with, too.
    pub(crate) fn start_build(
        kind: Kind,
        build: Build,
        folder: &Path,
        port: u16,
        tls: Option<&Path>,
    ) -> Result<Broker, String> {
        let _ = std::fs::remove_dir_all(folder);
        std::fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        if kind == Kind::RabbitMq {
            configure_rabbitmq(folder, port, tls)?;
        }
        Broker::listening(kind, build, folder, port, tls)
    }

    /// Starts a broker on what an earlier one left in `folder`.
    pub(crate) fn start_again(kind: Kind, folder: &Path, port: u16) -> Result<Broker, String> {
        Broker::listening(kind, Build::Release, folder, port, None)
    }

    fn listening(
        kind: Kind,
        build: Build,
        folder: &Path,
        port: u16,
        tls: Option<&Path>,
    ) -> Result<Broker, String> {
        let fail = |error: std::io::Error| format!("{}: {error}", kind.name());
        let log = File::options().create(true).append(true).open(folder.join("output.txt"));
        let log = log.map_err(fail)?;
        let mut program = match kind {
            Kind::Millrace => millrace(build, folder, port, tls),
            Kind::RabbitMq => rabbitmq(folder, port),
        };
        program.stdin(Stdio::null()).stderr(log.try_clone().map_err(fail)?).stdout(log);
        let begin = Instant::now();
        let child = program.spawn().map_err(fail)?;
        let started_in = Duration::ZERO;
        let mut broker = Broker { kind, child, folder: folder.into(), port, started_in };
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            let is_gone = broker.child.try_wait().map_err(fail)?.is_some();
            if is_gone || begin.elapsed() > START_MAX {
                let log = folder.join("output.txt");
                return Err(format!("{} did not start: see {}", kind.name(), log.display()));
            }
            std::thread::sleep(POLL);
        }
        broker.started_in = begin.elapsed();
        Ok(broker)
    }

    /// The process that does the work, which is not always the one that was started.
    pub(crate) fn pid(&self) -> u32 {
        let written = std::fs::read_to_string(self.folder.join("pid"));
        let written = written.ok().and_then(|text| text.trim().parse().ok());
        written.unwrap_or(self.child.id())
    }

    /// Variables with which RabbitMQ's own programs find this broker.
    pub(crate) fn control(&self) -> Vec<(String, String)> {
        match self.kind {
            Kind::Millrace => Vec::new(),
            Kind::RabbitMq => rabbitmq_environment(&self.folder, self.port),
        }
    }

    /// Asks the broker to stop, and says so if it had died before or does not stop in time.
    pub(crate) fn stop(mut self) -> Outcome {
        let name = self.kind.name();
        if let Some(status) = self.child.try_wait().map_err(|error| error.to_string())? {
            return Err(format!("{name} died: {status}; see {}", self.folder.display()));
        }
        run(&mut command("kill", &["-TERM", &self.pid().to_string()]))?;
        let begin = Instant::now();
        while begin.elapsed() < STOP_MAX {
            if self.child.try_wait().map_err(|error| error.to_string())?.is_some() {
                return Ok(());
            }
            std::thread::sleep(POLL);
        }
        self.child.kill().map_err(|error| error.to_string())?;
        Err(format!("{name} did not stop within {} s", STOP_MAX.as_secs()))
    }
}

fn millrace(build: Build, folder: &Path, port: u16, tls: Option<&Path>) -> Command {
    let mut program = command(build.millrace(), &["serve", "--data-dir"]);
    program.arg(folder.join("data")).args(["--amqp", &format!("127.0.0.1:{port}")]);
    if let Some(http) = port.checked_add(HTTP_ABOVE) {
        program.args(["--http", &format!("127.0.0.1:{http}")]);
    }
    if let Some(tls) = tls {
        program.args(["--amqps", &format!("127.0.0.1:{}", port - TLS_BELOW)]);
        program.arg("--tls-certfile").arg(tls.join("server_certificate.pem"));
        program.arg("--tls-keyfile").arg(tls.join("server_key.pem"));
        let authority = tls.join("ca_certificate.pem");
        program.args(["--set", &format!("tls_cacertfile={}", authority.display())]);
    }
    program
}

fn rabbitmq(folder: &Path, port: u16) -> Command {
    let mut program = command(format!("{RABBITMQ_PROGRAMS}/rabbitmq-server"), &[]);
    program.current_dir(folder).envs(rabbitmq_environment(folder, port));
    program
}

fn configure_rabbitmq(folder: &Path, port: u16, tls: Option<&Path>) -> Outcome {
    let mut settings = format!(
        "listeners.tcp.default = 127.0.0.1:{port}\nmanagement.tcp.port = {}\n\
         management.tcp.ip = 127.0.0.1\nlog.file.level = warning\n",
        u32::from(port) + u32::from(HTTP_ABOVE)
    );
    if let Some(tls) = tls {
        settings += &format!(
            "listeners.ssl.default = 127.0.0.1:{}\nssl_options.cacertfile = {tls}/ca_certificate.pem\n\
             ssl_options.certfile = {tls}/server_certificate.pem\nssl_options.keyfile = {tls}/server_key.pem\n\
             ssl_options.verify = verify_peer\nssl_options.fail_if_no_peer_cert = false\n",
            port - TLS_BELOW,
            tls = tls.display()
        );
    }
    let files = [
        ("rabbitmq.conf", settings.as_str()),
        ("plugins", "[rabbitmq_management].\n"),
        ("environment", ""),
    ];
    for (name, text) in files {
        std::fs::write(folder.join(name), text).map_err(|error| format!("{name}: {error}"))?;
    }
    for name in ["mnesia", "log"] {
        std::fs::create_dir_all(folder.join(name)).map_err(|error| format!("{name}: {error}"))?;
    }
    Ok(())
}

/// Keeps everything of RabbitMQ in `folder` and on loopback.
fn rabbitmq_environment(folder: &Path, port: u16) -> Vec<(String, String)> {
    let file = |name: &str| folder.join(name).to_string_lossy().into_owned();
    let distribution_port = (u32::from(port) + 20_000).to_string();
    let loopback = "-kernel inet_dist_use_interface {127,0,0,1}".to_string();
    [
        ("HOME", file("")),
        ("RABBITMQ_NODENAME", "reference@localhost".into()),
        ("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1".into()),
        ("RABBITMQ_NODE_PORT", port.to_string()),
        ("RABBITMQ_DIST_PORT", distribution_port),
        ("RABBITMQ_MNESIA_BASE", file("mnesia")),
        ("RABBITMQ_LOG_BASE", file("log")),
        ("RABBITMQ_PID_FILE", file("pid")),
        ("RABBITMQ_CONFIG_FILE", file("rabbitmq")),
        ("RABBITMQ_CONF_ENV_FILE", file("environment")),
        ("RABBITMQ_ENABLED_PLUGINS_FILE", file("plugins")),
        ("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", loopback),
        ("ERL_EPMD_ADDRESS", "127.0.0.1".into()),
        ("ERL_CRASH_DUMP", file("erl_crash.dump")),
    ]
    .map(|(name, value)| (name.to_string(), value))
    .to_vec()
}
