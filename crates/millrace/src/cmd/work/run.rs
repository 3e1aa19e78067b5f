//! `millrace work run`: executes jobs until a signal.
#![allow(clippy::disallowed_methods, reason = "starts what serves its metrics")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use service::io::http::{Orders, Watched, bind, serve, serve_with_orders};
use service::io::pauses::{Pause, Pauses};
use service::io::stop;
use tokio::signal::unix::{SignalKind, signal};
use worker::config::Config;
use worker::io::metrics::{Metrics, Status};
use worker::io::worker::{Control, Plan, Worker};

use super::super::log::Log;
use super::{File, fail, say, unable};

/// Execute jobs until you stop it; after that no job is left in memory
#[derive(clap::Args)]
#[command(
    after_help = "SIGTERM or SIGINT: the worker fetches no more jobs, lets running jobs finish within `[worker] grace`, \
                  gives the other jobs back, and prints the proof on standard output:\n  \
                  taken 1000 = done 990 + returned 8 + retried 0 + dead 2 + lost 0\n\
                  A second signal ends the worker at once: the broker gives the jobs that it held to other workers.\n\
                  SIGHUP: the worker reads the file again. Targets get their new settings, credentials and limits; \
                  pipelines get their new limits, rates and retries. If the file changes anything else, or is wrong, \
                  nothing changes and the log says why.\n\n\
                  Exit code 0: stopped. 1: the worker cannot continue. 2: the settings are wrong. 130: stopped at once."
)]
pub(super) struct Args {
    #[command(flatten)]
    file: File,
    /// Check the settings and exit: 0, or 2 with what is wrong. Connects to nothing
    #[arg(long)]
    check_config: bool,
    /// Print the settings in effect, with defaults and without secrets, and exit
    #[arg(long)]
    print_config: bool,
    #[command(flatten)]
    log: Log,
}

/// Runs until a signal, or until it cannot go on.
pub(super) fn run(args: &Args) -> ExitCode {
    let read = worker::io::config::read(&args.file.config);
    let read = read.and_then(|config| Ok((worker::io::config::plan(&config)?, config)));
    let (plan, config) = match read {
        Ok(read) => read,
        Err(error) => return unable(&format!("the settings are wrong:\n{error}")),
    };
    if args.print_config {
        say(&config.to_string());
    }
    if args.check_config || args.print_config {
        return ExitCode::SUCCESS;
    }
    args.log.begin();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&format!("cannot start: {error}")),
    };
    match runtime.block_on(work(plan, &config, args)) {
        Ok(proof) => {
            say(&proof);
            ExitCode::SUCCESS
        }
        Err(why) => fail(&why),
    }
}

async fn work(plan: Plan, config: &Config, args: &Args) -> Result<String, String> {
    let worker = Worker::new(plan).map_err(|error| error.to_string())?;
    if let Some(address) = config.worker.metrics_address() {
        let listener = bind(address).await;
        let listener = listener.map_err(|error| {
            format!(
                "cannot serve [worker] metrics on {address}: {error}. Give another address, or none"
            )
        })?;
        let names = config.pool.pipelines.iter().map(|one| one.name.clone());
        let told = Told {
            metrics: worker.metrics(),
            pauses: Pauses::default(),
            pipelines: names.map(|name| (name, Pauses::default())).collect(),
        };
        match config.worker.orders_secret_file() {
            Some(file) => {
                let secret = Orders::secret_in(Path::new(file));
                let secret = secret.map_err(|why| format!("[worker] orders_secret_file: {why}"))?;
                told.follow(&worker.control());
                let orders = Orders::new(&secret, told.pauses.clone());
                let orders = orders.with_parts(told.pipelines.clone());
                tokio::spawn(serve_with_orders(listener, told, orders));
            }
            None => {
                tokio::spawn(serve(listener, told));
            }
        }
    }
    let stopped = stop::on_signals(
        "the worker fetches no more jobs, finishes the running ones and gives the others back",
    );
    let pipelines = config.pool.pipelines.len();
    tracing::info!(pipelines, metrics = config.worker.metrics, "worker started");
    tokio::spawn(reload(args.file.config.clone(), config.clone(), worker.control()));
    let proof = worker.run_until(stopped).await.map_err(|error| error.to_string())?;
    tracing::info!("worker stopped: {proof}");
    Ok(proof.to_string())
}

/// Reads the file again with each SIGHUP. All of it holds, or nothing of it.
async fn reload(path: PathBuf, mut config: Config, control: Control) {
    let Ok(mut hangup) = signal(SignalKind::hangup()) else { return };
    while hangup.recv().await.is_some() {
        match change(&path, &config, &control).await {
            Ok(new) => {
                config = new;
                tracing::info!(
                    "configuration read again: targets and limits of pipelines have their new settings"
                );
            }
            Err(why) => {
                tracing::error!(%why, "the new configuration was refused; the old one stays in effect, all of it");
            }
        }
    }
}

/// The configuration that holds now.
async fn change(path: &Path, config: &Config, control: &Control) -> Result<Config, String> {
    let read = worker::io::config::read(path);
    let read = read.and_then(|new| Ok((worker::io::config::plan(&new)?, new)));
    let (plan, new) = read.map_err(|error| error.to_string())?;
    let fixed = config.fixed(&new);
    if !fixed.is_empty() {
        return Err(fixed.join("; "));
    }
    let changed = control.change(plan.settings, plan.targets).await;
    changed.map(|()| new).map_err(|problems| problems.join("; "))
}

/// What is served of a worker.
#[derive(Clone)]
struct Told {
    metrics: Metrics,
    pauses: Pauses,
    /// Those of each pipeline by itself.
    pipelines: BTreeMap<String, Pauses>,
}

impl Told {
    /// Has the worker do what is ordered.
    fn follow(&self, control: &Control) {
        let of_all = control.clone();
        tokio::spawn(self.pauses.clone().follow(move |rests| {
            let control = of_all.clone();
            async move { control.pause(rests).await }
        }));
        for (name, pauses) in &self.pipelines {
            let (name, control) = (name.clone(), control.clone());
            tokio::spawn(pauses.clone().follow(move |rests| {
                let (name, control) = (name.clone(), control.clone());
                async move { control.pause_pipeline(&name, rests).await }
            }));
        }
    }

    fn standing(&self) -> Status {
        let mut status = self.metrics.status();
        let said = |pauses: &Pauses| pauses.pause().map(|Pause { by, at_ms }| (by, at_ms)).unzip();
        (status.paused_by, status.paused_at) = said(&self.pauses);
        for one in &mut status.pipelines {
            (one.paused_by, one.paused_at) =
                self.pipelines.get(&one.name).map(said).unwrap_or_default();
        }
        status
    }
}

impl Watched for Told {
    fn turned_away(&self) {
        self.metrics.turned_away();
    }

    fn metrics(&self) -> String {
        self.metrics.text()
    }

    fn problem(&self) -> Option<String> {
        self.metrics.problem()
    }

    fn status(&self) -> Option<String> {
        serde_json::to_string(&self.standing()).ok()
    }
}
