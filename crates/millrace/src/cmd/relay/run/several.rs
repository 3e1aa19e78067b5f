//! `millrace relay run` with several sources: SIGHUP has the file read again.

use std::convert::Infallible;

use relay::{Board, Changes, Sources};
use service::io::pauses::Pauses;
use service::io::screen::show;
use service::settings::{Flag, Values};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use super::{serve_watched, stops};
use crate::cmd::relay::options::{self, File, RUN, Wanted};
use crate::cmd::relay::screen::Screen;

/// Where the settings were said, to read them again.
pub(super) struct Rereading {
    pub(super) flags: Vec<Flag>,
    pub(super) file: File,
}

/// Drains all sources until it is told to stop. What is wrong with a source ends nothing.
pub(super) async fn drain(
    sources: Sources,
    file: Rereading,
    values: &Values,
) -> Result<(), relay::Error> {
    // Before anything else: the signal ends a process that does not listen to it.
    let hangup = signal(SignalKind::hangup());
    let hangup = hangup.map_err(|error| relay::Error::setup(format!("SIGHUP: {error}")))?;
    let (board, pauses) = (Board::default(), Pauses::default());
    let stopped = stops();
    serve_watched(values, board.clone(), &pauses, Some(board.pauses())).await?;
    let every = values.text("report_every").map(|_| values.time("report_every"));
    let shown = board.clone();
    let screen = Screen::new(move || shown.total());
    let screen = tokio::spawn(show(screen, every, values.is_on("json")));
    tracing::info!(sources = sources.len(), "draining");
    let (sender, wanted) = watch::channel(sources);
    let rereading = tokio::spawn(reread(hangup, file, values.clone(), sender));
    let work = async |end: watch::Receiver<bool>| {
        relay::io::run_sources(wanted.clone(), board.clone(), pauses.clone(), end).await;
        Ok::<(), Infallible>(())
    };
    let Ok(()) = pauses.run(stopped, work).await;
    rereading.abort();
    screen.abort();
    tracing::info!(confirmed = board.total().confirmed, "ended");
    Ok(())
}

/// Reads the file again with each SIGHUP. All of it holds, or nothing of it.
async fn reread(
    mut hangup: Signal,
    Rereading { flags, file }: Rereading,
    values: Values,
    wanted: watch::Sender<Sources>,
) {
    while hangup.recv().await.is_some() {
        let why = match options::wanted(&flags, &file) {
            Ok((Wanted::Several(mut sources), new)) => {
                // To lose messages is said at a start, where it is warned of.
                let no_confirms = values.is_on("unsafe_no_confirms");
                sources.values_mut().for_each(|config| config.no_confirms = no_confirms);
                let changes = Changes::between(&wanted.borrow(), &sources);
                tracing::info!("SIGHUP: the configuration was read again: {changes}");
                warn_of_restart(&values, &new);
                wanted.send_replace(sources);
                continue;
            }
            Ok((Wanted::One(_), _)) => "the file names no sources any more".to_owned(),
            Err(problems) => problems.join("; "),
        };
        tracing::error!(
            "SIGHUP: the configuration was refused, and nothing changes: correct the file and send SIGHUP again: {why}"
        );
    }
}

/// Settings of the process hold until it ends.
fn warn_of_restart(old: &Values, new: &Values) {
    let is_of_process = |key: &str| RUN.iter().any(|setting| setting.key == key);
    let keys: Vec<&str> =
        old.differences(new).map(|it| it.key).filter(|it| is_of_process(it)).collect();
    if !keys.is_empty() {
        tracing::warn!("these settings take effect with a restart: {}", keys.join(", "));
    }
}
