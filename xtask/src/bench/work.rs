//! `bench work`: `millrace work`'s library beside Celery, asynq, River and BullMQ, each on the server that it is used
//! with; pushes and webhooks.
//!
//! The trials start the servers and measure; this builds what is measured.

use std::path::{Path, PathBuf};

use crate::process::{cargo, command, has, root, run, run_logged, target, tools};
use crate::{Outcome, trials};

const USAGE: &str =
    "cargo xtask bench work [--peers] [--quick] [--jobs N] [--only WORDS] [--cpus LIST]";

/// Builds what is measured, and measures it. `--peers`: with the peers, which are got from their registries first.
pub(super) fn measure(words: &[String]) -> Outcome {
    if words.iter().any(|word| word == "--help") {
        println!("usage: {USAGE}");
        return Ok(());
    }
    run(&mut cargo(&["build", "--quiet", "--release", "--package", "millrace"]))?;
    let (ours, words): (Vec<_>, Vec<_>) = words.iter().partition(|word| *word == "--peers");
    let mut bench = trials::trials("work-bench");
    bench.arg("--broker").arg(target().join("release/millrace"));
    bench.arg("--dir").arg(target().join("bench-work"));
    bench.arg("--json").arg(target().join("bench-work.json"));
    bench.arg("--markdown").arg(target().join("bench-work.md"));
    if !ours.is_empty() {
        bench.arg("--peers").arg(peers()?);
    }
    run(bench.args(words))
}

/// Builds every peer that this machine has a toolchain for; the others are skipped, and the table says so.
fn peers() -> Result<PathBuf, String> {
    let folder = tools().join("peers");
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let log = tools().join("setup.log");
    let built = [
        ("asynq", go("asynq", &folder, &log)),
        ("River", go("river", &folder, &log)),
        ("BullMQ", bullmq(&folder, &log)),
        ("Celery", celery(&folder, &log)),
    ];
    for (name, outcome) in built {
        if let Err(why) = outcome {
            println!("{name} is skipped: {why}");
        }
    }
    Ok(folder)
}

fn source(name: &str) -> PathBuf {
    root().join("trials/peers").join(name)
}

fn go(name: &str, folder: &Path, log: &Path) -> Outcome {
    if !has("go") {
        return Err("there is no go".into());
    }
    let mut build = command("go", &["build", "-o"]);
    build.arg(folder.join(name)).arg(".").current_dir(source(name));
    run_logged(&mut build, log)
}

fn bullmq(folder: &Path, log: &Path) -> Outcome {
    if !has("npm") {
        return Err("there is no npm".into());
    }
    let place = folder.join("bullmq");
    copy(&source("bullmq"), &place, &["main.mjs", "package.json"])?;
    let mut install = command("npm", &["install", "--no-audit", "--no-fund", "--silent"]);
    run_logged(install.current_dir(&place), log)
}

fn celery(folder: &Path, log: &Path) -> Outcome {
    let place = folder.join("celery");
    if !place.join("bin/python").exists() {
        let words = place.to_string_lossy();
        run_logged(&mut command("python3", &["-m", "venv", &words]), log)?;
    }
    copy(&source("celery"), &place, &["noop.py"])?;
    let pip = place.join("bin/pip");
    run_logged(&mut command(pip, &["install", "-q", "celery[redis]==5.7.0"]), log)
}

fn copy(from: &Path, to: &Path, names: &[&str]) -> Outcome {
    let failed = |error: std::io::Error| format!("{}: {error}", to.display());
    std::fs::create_dir_all(to).map_err(failed)?;
    for name in names {
        std::fs::copy(from.join(name), to.join(name)).map_err(failed)?;
    }
    Ok(())
}
