//! `millrace serve`: the one place where the parts of the broker are wired.
//!
//! ```text
//!   ports taken ──> identified (or a member lets the new node in) ──> log and checkpoints read ──> groups restored
//!     ──> port for peers ──> threads ──> control socket, metrics ──groups can serve──> AMQP port: serving
//!     ──signal──> stopping ──> ended
//! ```
//!
//! From the identity to the threads it is `cluster::launch`. `told` has the signals, `supervised` what the service
//! manager hears.
#![allow(
    clippy::disallowed_methods,
    reason = "wires the parts: opens the listener and starts the task that serves it"
)]

mod banner;
mod last_words;
mod memory;
mod metrics;
mod open_files;
mod parent;
mod port;
mod supervised;
mod told;

use std::net::{SocketAddr, TcpListener as Probe};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use banner::Banner;
use broker::io::broker::{Broker, Outside};
use broker::io::first_user::{self, FirstUser};
use certificates::ServerTls;
use cluster::{ClusterHandle, Failure, StartError};
use management::io::{Api, BootDefinitions};
use metrics::{Node, Stage};
use oauth::io::Tokens;
use otlp::io::Exporter;
use port::Port;
use service::io::http::Orders;
use service::settings::{self, Flag, Setting};
use supervised::Waiting;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use told::{Ears, Told};

use super::flags::{Flags, Tables};
use super::log::{self, Dial, LogFormat};
use super::terminal;
use crate::config::{self, Config, SETTINGS};
use crate::control::{Control, Running, Start};

/// How long what serves clients may take to end when the node stops: somewhat longer than a client may take
/// to answer that it is told to go.
const GOODBYE: Duration = Duration::from_millis(2500);

/// How long the collector may take for the last spans after that.
const LAST_SPANS: Duration = Duration::from_millis(500);

/// How long the node's threads may take after that. What they do later than this, nobody waits for.
const STOPPING: Duration = Duration::from_millis(2200);

/// The settings that are options, too.
#[derive(Clone)]
struct Shown;

impl Tables for Shown {
    const SHOWN: &'static [&'static [Setting]] = &[SETTINGS];
}

/// What `millrace serve` takes.
#[derive(clap::Args)]
#[command(
    after_help = "Millrace reads settings from the file, then from the environment (MILLRACE_...), then from these \
                  flags; the last one wins. `millrace serve --print-config` lists all settings and the values they \
                  accept."
)]
pub(crate) struct Args {
    #[command(flatten)]
    flags: Flags<Shown>,
    /// Read settings from this configuration file
    #[arg(long, value_name = "FILE", env = "MILLRACE_CONFIG")]
    config: Option<PathBuf>,
    /// Set any setting of the configuration file (repeatable)
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Check the configuration and exit, with exit code 0 if it is valid
    #[arg(long)]
    check_config: bool,
    /// Print every setting with its default, then exit
    #[arg(long)]
    print_config: bool,
    /// End when this process ends, which has started the node
    #[arg(long, value_name = "PID", hide = true)]
    end_with: Option<i32>,
}

/// Runs the broker until it is told to stop.
pub(crate) fn run(args: Args) -> ExitCode {
    if args.print_config {
        return said(&settings::reference(SETTINGS));
    }
    if let Some(Err(why)) = args.end_with.map(parent::end_with) {
        return fail(&why);
    }
    let config = match load(&args) {
        Ok(config) => config,
        Err(problems) => {
            return fail(&format!("The configuration is wrong:\n  {}", problems.join("\n  ")));
        }
    };
    let listen = match cluster::foresee(&config.data_dir, config.peers.as_ref()) {
        Ok(listen) => listen,
        Err(why) => return fail(&why),
    };
    let tls = match config.tls.clone().map(ServerTls::load).transpose() {
        Ok(tls) => tls.map(Arc::new),
        Err(why) => return fail(&format!("TLS with clients: {why}")),
    };
    let tokens = match config.oauth.clone().map(Tokens::load).transpose() {
        Ok(tokens) => tokens.map(Arc::new),
        Err(why) => return fail(&format!("OAuth: {why}")),
    };
    let spans = match config.otlp.clone().map(Exporter::new).transpose() {
        Ok(spans) => spans.map(Arc::new),
        Err(why) => return fail(&format!("OpenTelemetry: {why}")),
    };
    let definitions = config.definitions.as_deref().map(BootDefinitions::load).transpose();
    let definitions = match definitions {
        Ok(definitions) => definitions,
        Err(why) => return fail(&format!("The definitions cannot be brought in: {why}")),
    };
    let ignored = config.ignored_variables();
    if args.check_config {
        let remark = ignored.map(|ignored| format!("{ignored}\n")).unwrap_or_default();
        return said(&format!("The configuration is right.\n{remark}"));
    }
    let dial = log::begin(&config.log, LogFormat::Text);
    if let Some(ignored) = ignored {
        tracing::warn!("{ignored}");
    }
    open_files::raise();
    let reload = Reload { args, config: config.clone(), dial };
    let given = Given { tls, tokens, spans, definitions };
    match serve(&config, listen.as_deref(), given, reload) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => fail(&why),
    }
}

fn load(args: &Args) -> Result<Config, Vec<String>> {
    let mut flags = args.flags.given.clone();
    let mut problems = Vec::new();
    for set in &args.set {
        match Flag::set(Shown::SHOWN, set) {
            Ok(flag) => flags.push(flag),
            Err(why) => problems.push(why),
        }
    }
    let file = args.config.as_ref().and_then(|path| {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path);
        let text = text.map_err(|error| problems.push(format!("{name}: cannot be read: {error}")));
        Some((name, text.ok()?))
    });
    let file = file.as_ref().map(|(name, text)| (&**name, &**text));
    match config::load(file, variables(), &flags) {
        Ok(config) if problems.is_empty() => Ok(config),
        Ok(_) => Err(problems),
        Err(more) => Err([problems, more].concat()),
    }
}

/// The environment. What is not text is no setting of ours.
fn variables() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, text)| Some((name.into_string().ok()?, text.into_string().ok()?)))
}

/// What files said that the settings name.
struct Given {
    /// What clients are shown under TLS.
    tls: Option<Arc<ServerTls>>,
    /// Who judges clients' tokens.
    tokens: Option<Arc<Tokens>>,
    /// Who sends spans to a collector.
    spans: Option<Arc<Exporter>>,
    definitions: Option<BootDefinitions>,
}

/// Serves until it is told to stop. `listen`: where other nodes are to reach this one.
fn serve(
    config: &Config,
    listen: Option<&str>,
    Given { tls, tokens, spans, definitions }: Given,
    reload: Reload,
) -> Result<(), String> {
    let began = Instant::now();
    // Before the data directory is made or touched: most starts that fail, fail here.
    let port = Port::take(&config.amqp, "--amqp")?;
    let sealed = config.amqps.as_deref();
    let sealed = sealed.map(|address| Port::take(address, "--amqps")).transpose()?;
    listen.map_or(Ok(()), port::probe_peer)?;
    let take = |address: &Option<String>, what, flag| {
        address.as_deref().map(|address| port::take_http(address, what, flag)).transpose()
    };
    let http = Http {
        metrics: take(&config.metrics, "Metrics", "--metrics")?,
        api: take(&config.http, "The HTTP API", "--http")?,
        sealed_api: take(&config.https, "The HTTP API under TLS", "--https")?,
    };
    let ears = Ears::open()?;
    // A directory with an identity was used before.
    let is_new = !config.data_dir.join("IDENTITY").exists();
    let data_dir = config.data_dir.display().to_string();
    let failure = Failure::new(move |cause, why| {
        let words = last_words::of(cause, why, &data_dir);
        tracing::error!("{words}");
        terminal::remark(&format!("millrace: {words}"));
        std::process::exit(last_words::exit_code(cause));
    });
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let start = cluster::Config {
        data_dir: config.data_dir.clone(),
        groups: config.groups,
        shards: (cores / 2).max(1),
        wal_file_bytes: config.wal_file_bytes,
        commit_delay_us: config.commit_delay_us,
        memory_limit: config.memory_limit.unwrap_or_else(memory::share),
        disk_free_limit: config.disk_free_limit,
        new_cluster: draw(),
        version_max: config.version_max,
        reconcile_stop: config.reconcile_stop,
        peers: config.peers.clone(),
    };
    let cluster = cluster::launch(&start, &failure).map_err(|error| match error {
        StartError::Directory(error) => {
            format!("The data directory {} cannot be used: {error}", config.data_dir.display())
        }
        StartError::Cluster(why) => why,
    })?;
    let outside = Outside { tokens: tokens.clone(), spans: spans.clone() };
    let broker = Broker::with_outside(cluster.clone(), sessions(config), outside);
    let broker = broker.map_err(|error| format!("AMQP cannot be served: {error}"))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(cores.max(2))
        .thread_name("amqp")
        .enable_all()
        .build()
        .map_err(|error| format!("The runtime cannot start: {error}"))?;
    ears.up();
    let data_dir = std::path::absolute(&config.data_dir);
    let data_dir = data_dir.unwrap_or_else(|_| config.data_dir.clone());
    let start = Start {
        at: began,
        data_dir: data_dir.clone(),
        amqp: OnceLock::new(),
        metrics: config.metrics.clone(),
        peers: listen.map(str::to_owned),
    };
    let api = Api::new(cluster.clone(), Arc::clone(&broker), tls.clone());
    let secret = config.companions_secret_file.as_deref().map(Orders::secret_in).transpose();
    let secret = secret.map_err(|why| format!("companions_secret_file {why}"))?;
    api.companions_are(config.companions.clone(), secret);
    api.node_is_at(data_dir, config.zone.as_deref());
    let serving = Serving {
        config,
        is_new,
        cluster: cluster.clone(),
        node: Node::new(
            cluster.clone(),
            Arc::clone(&broker),
            api.clone(),
            began,
            config.metrics_queues_max,
        ),
        start: Arc::new(start),
        ears,
        reload,
        api,
        tls,
        tokens,
        spans,
        definitions,
        broker,
    };
    let served = runtime.block_on(serving.run(port, sealed, http));
    runtime.shutdown_timeout(Duration::from_millis(200));
    let late = cluster.stop_within(STOPPING);
    if !late.is_empty() {
        tracing::warn!(
            threads = late.join(", "),
            "these threads have not stopped in time; the process ends without them. Nothing is lost: everything \
             confirmed is in the log"
        );
    }
    served
}

/// What the settings say of AMQP sessions.
fn sessions(config: &Config) -> broker::Config {
    let sessions = broker::Config {
        frame_bytes_max: config.frame_bytes_max,
        channel_max: config.channel_max,
        heartbeat_seconds: config.heartbeat_s,
        consumer_timeout: Duration::from_secs(config.consumer_timeout_s),
        message_bytes_max: config.message_bytes_max,
        consumers_per_channel_max: config.consumers_per_channel_max,
        loopback_users: config.loopback_users.clone(),
        certificate_user: config.certificate_user,
        connections_max: open_files::connections(),
        ..broker::Config::default()
    };
    sessions.within(config.memory_limit.unwrap_or_else(memory::share))
}

/// Ports for HTTP, taken and not served yet.
struct Http {
    metrics: Option<Probe>,
    api: Option<Probe>,
    sealed_api: Option<Probe>,
}

/// A node whose threads run, and what it hears.
struct Serving<'a> {
    config: &'a Config,
    /// The data directory was empty before this start.
    is_new: bool,
    cluster: ClusterHandle,
    broker: Arc<Broker>,
    start: Arc<Start>,
    node: Node,
    ears: Ears,
    reload: Reload,
    api: Api,
    /// What clients are shown under TLS.
    tls: Option<Arc<ServerTls>>,
    /// Who judges clients' tokens.
    tokens: Option<Arc<Tokens>>,
    /// Who sends spans to a collector.
    spans: Option<Arc<Exporter>>,
    definitions: Option<BootDefinitions>,
}

impl Serving<'_> {
    /// The control socket and the metrics answer from the start; AMQP when the node's groups can serve.
    async fn run(mut self, port: Port, sealed: Option<Port>, http: Http) -> Result<(), String> {
        let running = Running {
            cluster: self.cluster.clone(),
            broker: Arc::clone(&self.broker),
            start: Arc::clone(&self.start),
        };
        let keeping = self.tokens.clone().map(|tokens| tokio::spawn(tokens.keep()));
        let control = tokio::spawn(Control::open(&self.config.data_dir)?.serve(running));
        let watched =
            http.metrics.map(|listener| watch(listener, self.node.clone())).transpose()?;
        let plain = http.api.map(|listener| manage(listener, None, &self.api)).transpose()?;
        let tls = self.tls.clone();
        let secure =
            http.sealed_api.map(|listener| manage(listener, tls, &self.api)).transpose()?;
        let neighbours = tokio::spawn(management::io::answer_neighbours(self.api.clone()));
        let waiting = self.cluster.clone();
        let ready = tokio::task::spawn_blocking(move || waiting.wait_ready());
        let others = Waiting::begin();
        let begun = self.told_to_stop_before(ready).await;
        others.end().await;
        let served = match begun {
            Ok(true) => Ok(()),
            Ok(false) => self.listen_on(port, sealed).await,
            Err(why) => Err(why),
        };
        control.abort();
        neighbours.abort();
        for task in watched.into_iter().chain(plain).chain(secure).chain(keeping) {
            task.abort();
        }
        served
    }

    async fn listen_on(&mut self, port: Port, sealed: Option<Port>) -> Result<(), String> {
        let listener = port.open()?;
        let address = listener.local_addr().map_err(|error| error.to_string())?;
        let sealed = sealed.map(Port::open).transpose()?;
        let sealed_at = sealed.as_ref().and_then(|listener| listener.local_addr().ok());
        let mut drawn = None;
        let definitions = self.definitions.take();
        let first_users = FirstUsers {
            config: self.config,
            is_new: self.is_new,
            cluster: self.cluster.clone(),
            api: self.api.clone(),
            definitions: definitions.as_ref(),
        };
        // It can last: the node hears signals meanwhile.
        let making = async { drawn = Some(first_users.make(address).await) };
        if self.told_to_stop_before(making).await? {
            return Ok(());
        }
        let drawn = drawn.expect("it was not told to stop, so that is done")?;
        // Only now: whoever hears that the node takes clients counts on its users and definitions.
        self.start.amqp.get_or_init(|| address);
        self.api.amqp_is_at(address, false);
        if let Some(address) = sealed_at {
            self.api.amqp_is_at(address, true);
        }
        let (stop, stopped) = tokio::sync::watch::channel(false);
        let dead_letters = broker::io::dead_letter::run(Arc::clone(&self.broker), stopped.clone());
        let dead_letters = tokio::spawn(dead_letters);
        let own = broker::io::own::run(Arc::clone(&self.broker), stopped.clone());
        let own = tokio::spawn(own);
        let (last_span, last_spans) = tokio::sync::watch::channel(false);
        let name = format!("millrace@{}", self.cluster.node().0);
        let sending = self.spans.clone().map(|spans| {
            let version = env!("CARGO_PKG_VERSION");
            tokio::spawn(async move { spans.run(name, version, last_spans).await })
        });
        let mut serving = tokio::task::JoinSet::new();
        let broker = || Arc::clone(&self.broker);
        serving.spawn(broker::io::listener::serve(listener, None, broker(), stopped.clone()));
        if let Some(listener) = sealed {
            let tls = self.tls.clone();
            serving.spawn(broker::io::listener::serve(listener, tls, broker(), stopped));
        }
        self.node.is_at(Stage::Serving);
        announce(self.config, (address, sealed_at), drawn.as_ref(), &self.cluster);
        supervised::serving(address);
        let served = self.told_to_stop_before(std::future::pending::<()>()).await.map(|_| ());
        self.node.is_at(Stage::Stopping);
        supervised::stopping();
        tracing::info!(
            "stopping: closing client connections; a second signal ends the process at once, which loses nothing"
        );
        // Connections are closed with 320 by their own tasks; the listener's task ends with the last.
        stop.send_replace(true);
        self.cluster.announce_stop();
        let all = async { tokio::join!(serving.join_all(), dead_letters, own) };
        if tokio::time::timeout(GOODBYE, all).await.is_err() {
            tracing::warn!(
                "some clients did not answer connection.close in time; their connections are cut"
            );
        }
        // The spans of the connections that have just ended are among the last.
        last_span.send_replace(true);
        if let Some(sending) = sending
            && tokio::time::timeout(LAST_SPANS, sending).await.is_err()
        {
            tracing::warn!(
                "OpenTelemetry: the collector did not take the last spans in time; they are lost"
            );
        }
        served
    }

    /// Does what the node is told, until it is told to stop (true) or `end` comes (false).
    ///
    /// # Errors
    /// The cluster refuses this node for good.
    async fn told_to_stop_before<T>(
        &mut self,
        end: impl Future<Output = T>,
    ) -> Result<bool, String> {
        let mut end = std::pin::pin!(end);
        loop {
            tokio::select! {
                _ = &mut end => return Ok(false),
                why = self.cluster.expelled() => return Err(expelled(&why)),
                told = self.ears.next() => match told {
                    Told::Stop => return Ok(true),
                    Told::Reload => {
                        self.reload.again();
                        show_again(self.tls.as_deref());
                        if let Some(tokens) = self.tokens.clone() {
                            // A server may be slow, and other signals do not wait for it.
                            tokio::spawn(async move { tokens.reload().await });
                        }
                    }
                    Told::Report => terminal::remark(&self.node.line()),
                },
            }
        }
    }
}

/// Who may log in when the node begins to serve.
struct FirstUsers<'a> {
    config: &'a Config,
    is_new: bool,
    cluster: ClusterHandle,
    api: Api,
    definitions: Option<&'a BootDefinitions>,
}

impl FirstUsers<'_> {
    /// Brings in the definitions, and makes the user that there is to be if they have none. Gives the one whose
    /// password was drawn.
    async fn make(self, address: SocketAddr) -> Result<Option<FirstUser>, String> {
        let Self { config, is_new, cluster, api, definitions } = self;
        let Some(definitions) = definitions else {
            return first_user(config, is_new, address, &cluster).await;
        };
        // Who is chosen by a setting is there beside those of the definitions.
        let needs_user = config.first_user.is_some() || !definitions.has_users();
        let drawn = match needs_user {
            true => first_user(config, is_new, address, &cluster).await?,
            false => None,
        };
        let brought = definitions.bring_in(&api).await;
        brought.map_err(|why| format!("The definitions cannot be brought in: {why}"))?;
        Ok(drawn)
    }
}

/// Lets whoever watches the node ask for its metrics.
fn watch(listener: Probe, node: Node) -> Result<JoinHandle<()>, String> {
    let open = || {
        listener.set_nonblocking(true)?;
        TcpListener::from_std(listener)
    };
    let listener = open().map_err(|error| format!("Metrics cannot be served: {error}"))?;
    Ok(tokio::spawn(service::io::http::serve(listener, node)))
}

/// Lets operators and RabbitMQ's tools ask for the HTTP API.
fn manage(
    listener: Probe,
    tls: Option<Arc<ServerTls>>,
    api: &Api,
) -> Result<JoinHandle<()>, String> {
    let open = || {
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    };
    let opened: std::io::Result<_> = open();
    let (listener, address) =
        opened.map_err(|error| format!("The HTTP API cannot be served: {error}"))?;
    let is_tls = tls.is_some();
    api.is_at(address, is_tls);
    tracing::info!(%address, tls = is_tls, "HTTP API: serving");
    Ok(tokio::spawn(management::io::serve(listener, tls, api.clone())))
}

/// Reads the files again that clients are shown.
fn show_again(tls: Option<&ServerTls>) {
    match tls.map(ServerTls::reload) {
        None => {}
        Some(Ok(())) => tracing::info!(
            "SIGHUP: certificate and key for clients read again; new connections get them, open ones keep what they \
             have"
        ),
        Some(Err(why)) => tracing::error!(
            %why,
            "SIGHUP: the certificate for clients cannot be used; new connections get the one before. Mend the file, \
             then send SIGHUP again"
        ),
    }
}

/// What a node says that ends because its cluster does not know it any more.
fn expelled(why: &str) -> String {
    format!("This node stops, because the other nodes of the cluster refuse it: {why}")
}

/// What SIGHUP does: the settings are read again. What can change while a node runs is what it logs.
struct Reload {
    args: Args,
    /// What is in force, but for what it logs.
    config: Config,
    dial: Dial,
}

impl Reload {
    fn again(&mut self) {
        let config = match load(&self.args) {
            Ok(config) => config,
            Err(problems) => {
                let problems = problems.join("; ");
                tracing::error!(%problems, "SIGHUP: the new settings are wrong; nothing was changed");
                return;
            }
        };
        if let Err(why) = self.dial.turn(&config.log) {
            tracing::error!(%why, "SIGHUP: cannot change the log level");
        }
        let waiting = config.differences(&self.config).filter(|setting| !setting.is_reloaded);
        let waiting: Vec<_> = waiting.map(|setting| setting.key).collect();
        // What was asked for is told, whatever the level is now.
        let log = &config.log;
        match waiting.is_empty() {
            true => {
                tracing::warn!(%log, "SIGHUP: settings read again; `log` is in effect, no other setting has changed")
            }
            false => {
                let waiting = waiting.join(", ");
                tracing::warn!(%log, %waiting, "SIGHUP: settings read again; `log` is in effect, the \
                                                other changed settings wait for a restart");
            }
        }
    }
}

/// Makes the user that was chosen. A beginning without a choice, where others than this machine can connect and nobody
/// but `guest` would be there, who may not come from elsewhere, gets a user with a drawn password: returned to be told.
/// Of the nodes that make a cluster one draws, the one with the smallest number.
async fn first_user(
    config: &Config,
    is_new: bool,
    address: SocketAddr,
    cluster: &ClusterHandle,
) -> Result<Option<FirstUser>, String> {
    if let Some(chosen) = &config.first_user {
        return first_user::make(cluster, chosen).await.map(|()| None);
    }
    let is_guest_bound = config.loopback_users.iter().any(|user| user == "guest");
    match is_new && is_founder(config) && is_guest_bound && !address.ip().is_loopback() {
        true => first_user::draw(cluster).await,
        false => Ok(None),
    }
}

/// Whether this node is the first of a cluster that begins with it.
fn is_founder(config: &Config) -> bool {
    config.peers.as_ref().is_none_or(|peers| {
        let first = peers.peers.iter().map(|(node, _)| *node).min();
        peers.join.is_none() && peers.node == first
    })
}

/// The lines that tell a newcomer what to do next. The first is what scripts wait for.
fn announce(
    config: &Config,
    (address, sealed): (SocketAddr, Option<SocketAddr>),
    drawn: Option<&FirstUser>,
    cluster: &ClusterHandle,
) {
    let data_dir =
        std::path::absolute(&config.data_dir).unwrap_or_else(|_| config.data_dir.clone());
    let program = std::env::args().next().unwrap_or_else(|| "millrace".to_owned());
    let banner = Banner {
        address,
        sealed,
        is_guest_known: first_user::is_guest_known(cluster),
        is_guest_alone: first_user::is_guest_alone(cluster),
        drawn,
        loopback_users: &config.loopback_users,
        data_dir: &data_dir,
        program: &program,
    };
    said(&banner.text());
}

/// A number for a new cluster that no other cluster has.
fn draw() -> u128 {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap_or_default();
    u128::from_str_radix(&text.trim().replace('-', ""), 16).unwrap_or(1)
}

fn said(text: &str) -> ExitCode {
    if terminal::say(text) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn fail(why: &str) -> ExitCode {
    terminal::remark(&format!("millrace: {why}"));
    ExitCode::FAILURE
}
