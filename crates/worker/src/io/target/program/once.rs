//! One process for one job.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::{sleep_until, timeout, timeout_at};

use super::process::Process;
use super::{Shared, busy};
use crate::job::Message;
use crate::outcome::Outcome;
use crate::target::program::{End, judge, variables};

/// How long the pipes of an ended process are read. Who has left its group may hold them open.
const DRAIN_MAX: Duration = Duration::from_millis(500);

/// Bytes that are read at once.
const PIECE_BYTES: usize = 16 << 10;

/// Executes the job. The process has an owner of its own, which ends it in good order when this is dropped.
pub(super) async fn run(shared: &Arc<Shared>, job: Message, deadline: Instant) -> Outcome {
    let place = timeout_at(deadline.into(), Arc::clone(&shared.places).acquire_owned()).await;
    let Ok(Ok(place)) = place else {
        return busy(format!("all {} processes were busy", shared.settings.processes));
    };
    let left = deadline.saturating_duration_since(Instant::now());
    let more = match variables(&job, left) {
        Ok(more) => more,
        Err(why) => return Outcome::reject(why),
    };
    let process = match shared.spawn(&more).await {
        Ok(process) => process,
        Err(why) => return busy(format!("the program was not started: {why}")),
    };
    let (reply, answer) = oneshot::channel();
    let owner = attend(Arc::clone(shared), process, job.body, deadline, reply, place);
    tokio::spawn(owner);
    answer.await.unwrap_or_else(|_| Outcome::retry("the owner of the process has ended"))
}

/// What a process prints, up to a bound.
struct Output {
    kept: Vec<u8>,
    bytes_max: usize,
}

struct Flood;

async fn attend(
    shared: Arc<Shared>,
    mut process: Process,
    body: Bytes,
    deadline: Instant,
    mut reply: oneshot::Sender<Outcome>,
    place: OwnedSemaphorePermit,
) {
    let settings = &shared.settings;
    let pipes = process.pipes();
    let (mut stdin, mut stdout, mut stderr) = (pipes.stdin, pipes.stdout, pipes.stderr);
    let output = || Output { kept: Vec::new(), bytes_max: settings.output_bytes_max };
    let (mut said, mut printed) = (output(), output());
    let feed = async {
        // A program need not read its job.
        let _ = stdin.write_all(&body).await;
        drop(stdin);
        Ok::<(), Flood>(())
    };
    let talk = async {
        let done =
            tokio::try_join!(feed, pump(&mut stdout, &mut printed), pump(&mut stderr, &mut said));
        if done.is_ok() {
            std::future::pending::<()>().await;
        }
    };
    let early = tokio::select! {
        () = process.ended() => None,
        () = talk => Some(End::Flood),
        () = sleep_until(deadline.into()) => Some(End::Late),
        () = reply.closed() => Some(End::Late),
    };
    let end = match early {
        None => {
            let end = process.kill().await;
            let rest = async {
                tokio::try_join!(pump(&mut stdout, &mut printed), pump(&mut stderr, &mut said))
            };
            match timeout(DRAIN_MAX, rest).await {
                Ok(Err(Flood)) => End::Flood,
                Ok(Ok(_)) | Err(_) => end,
            }
        }
        Some(end) => end,
    };
    let is_over = matches!(end, End::Exit(_) | End::Signal(_));
    let _ = reply.send(judge(settings, &end, &said.kept));
    if !is_over {
        process.stop(settings.stop_grace.0).await;
    }
    drop(place);
}

/// Reads to the end.
async fn pump(from: &mut (impl AsyncRead + Unpin), into: &mut Output) -> Result<(), Flood> {
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        match from.read(&mut piece).await {
            Ok(0) | Err(_) => return Ok(()),
            Ok(bytes) if into.kept.len() + bytes > into.bytes_max => return Err(Flood),
            Ok(bytes) => into.kept.extend_from_slice(&piece[..bytes]),
        }
    }
}
