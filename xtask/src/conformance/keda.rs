//! KEDA's scaler of RabbitMQ, by which Kubernetes starts and stops workers as queues grow and shrink.
//!
//! Of KEDA's module only the scaler's own file is built, unchanged but for its imports: the rest drags Kubernetes and
//! three clouds in. `conformance/keda` stands in for what the file imports, and has the cases.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use super::celery::cases;
use super::go::{download_archive, fetch_go};
use super::own_copy::place;
use super::suite::{Case, Installer, Judge, Pace, Suite, Target, whole};
use crate::Outcome;
use crate::brokers::HTTP_ABOVE;
use crate::process::{command, root, run_logged, tools};

const VERSION: &str = "2.21.0";

pub(super) const KEDA: Suite = Suite {
    name: "keda",
    version: VERSION,
    is_installed,
    install,
    installer: Installer::Go,
    run,
    parts: whole,
    judge: Judge::RabbitMq,
    pace: Pace::Seconds(30),
    wants_port_5672: false,
};

/// The scaler, where KEDA has it and where it goes.
const PUBLISHED: &str = "pkg/scalers/rabbitmq_scaler.go";
const SCALER: &str = "scalers/rabbitmq_scaler.go";

/// What the scaler imports, and what it is given instead.
const IMPORTS: &str = "imports.sed";

/// Ours, below `conformance/keda`.
const FILES: &[&str] = &[
    "go.mod",
    "go.sum",
    IMPORTS,
    "main.go",
    "cases.go",
    "rates.go",
    "around/around.go",
    "oauth/oauth.go",
    "scalers/scaler.go",
];

/// Longest run of all cases.
const RUN_MAX_SECONDS: u32 = 600;

fn ours() -> PathBuf {
    root().join("conformance/keda")
}

fn source() -> PathBuf {
    tools().join("src").join(format!("keda-{VERSION}"))
}

fn binary() -> PathBuf {
    source().join("keda-trial")
}

/// Whether there is a program, built from the cases of today.
fn is_installed() -> bool {
    let read = |folder: &Path, file: &str| std::fs::read(folder.join(file)).ok();
    let (ours, built) = (ours(), source());
    let is_same = |file: &&str| {
        let text = read(&ours, file);
        text.is_some() && text == read(&built, file)
    };
    binary().exists() && FILES.iter().all(is_same)
}

fn install(log: &Path) -> Outcome {
    let go = fetch_go(log)?;
    let module = format!("github.com/kedacore/keda/v2@v{VERSION}");
    let archive = download_archive(&go, &module)?;
    let _ = std::fs::remove_dir_all(source());
    place(&ours(), &source(), log)?;
    let (all, scaler) = (source().join("published"), source().join(SCALER));
    let mut extract = command("python3", &["-m", "zipfile", "-e", &archive]);
    run_logged(extract.arg(&all), log)?;
    let published = all.join(module).join(PUBLISHED);
    run_logged(command("mv", &[]).args([&published, &scaler]), log)?;
    let _ = std::fs::remove_dir_all(all);
    let imports = ours().join(IMPORTS);
    run_logged(command("sed", &["-i", "-f"]).args([&imports, &scaler]), log)?;
    let mut build = command(&go, &["build", "-o", "keda-trial", "."]);
    // The one that is here, not one that it would fetch for itself.
    run_logged(build.current_dir(source()).env("GOTOOLCHAIN", "local"), log)
}

fn run(target: &Target) -> Result<Vec<Case>, String> {
    let http = u32::from(target.port) + u32::from(HTTP_ABOVE);
    let mut run = target.command(RUN_MAX_SECONDS, binary());
    run.arg(&target.host).args([target.port.to_string(), http.to_string()]).args(&target.skips);
    run.stdin(Stdio::null());
    let outcome = run_logged(&mut run, &target.log());
    let text = std::fs::read(target.log()).map_err(|error| error.to_string())?;
    let cases = cases(&String::from_utf8_lossy(&text));
    if cases.is_empty() { outcome.map(|()| cases) } else { Ok(cases) }
}
