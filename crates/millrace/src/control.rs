//! What a running node can be asked on its own machine: the socket `control.sock` in its data
//! directory, one line of JSON each way.
//!
//! Whoever may open the socket may do everything; only the user that runs the node may.
#![allow(
    clippy::disallowed_methods,
    reason = "a shell of the binary: opens the socket, starts a task per request, and waits"
)]

mod describe;
mod orders;
mod running;
mod status;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::OwnedWriteHalf;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;

use cluster::{Admission, ClusterHandle};

pub(crate) use describe::{Described, What};
pub(crate) use running::{Running, Start};
pub(crate) use status::Status;

const SOCKET: &str = "control.sock";

/// Bytes of a request.
const REQUEST_BYTES_MAX: u64 = 64 << 10;

/// Bytes of a description: more than a hundred lines take, whatever their names are.
const DESCRIPTION_BYTES_MAX: usize = 1 << 20;

/// Requests that are carried out at once.
const CONNECTIONS_MAX: usize = 16;

/// How long somebody who connects may take to ask.
const TIMEOUT: Duration = Duration::from_secs(5);

/// After a failure the same is tried again.
const PAUSE: Duration = Duration::from_millis(500);

/// What may be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Request {
    Status,
    Describe {
        what: What,
    },
    Add {
        node: u64,
        address: String,
    },
    Remove {
        node: u64,
    },
    Replace {
        node: u64,
        by: u64,
    },
    Rebalance,
    Replicas {
        count: usize,
        groups: Option<u32>,
    },
    Drain {
        node: u64,
    },
    Raise {
        force: bool,
    },
    /// A change that is new in `Version::TRIAL`: for trials of upgrades.
    Remark {
        text: String,
    },
}

/// What is answered: a sentence that says what happened, or what to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    Status(Status),
    Described(Described),
    /// How far it is; more follows.
    Progress(String),
    Done(String),
    Refused(String),
}

/// How long an order may take in all.
const ORDER: Duration = Duration::from_secs(180);

/// Words on an order's way that may wait to be sent.
const WORDS_MAX: usize = 64;

/// Bytes of a path that a socket's address holds on every Linux.
const SOCKET_PATH_BYTES_MAX: usize = 100;

/// The socket's path as the system takes it. A long one is reached through the open directory, which the
/// second value keeps open.
fn reach(path: &Path) -> std::io::Result<(PathBuf, Option<std::fs::File>)> {
    use std::os::fd::AsRawFd as _;
    if path.as_os_str().len() <= SOCKET_PATH_BYTES_MAX {
        return Ok((path.to_owned(), None));
    }
    let directory = std::fs::File::open(path.parent().unwrap_or(Path::new(".")))?;
    let short = format!("/proc/self/fd/{}/{SOCKET}", directory.as_raw_fd());
    Ok((short.into(), Some(directory)))
}

/// Serves the socket until it is dropped.
pub(crate) struct Control {
    listener: UnixListener,
    path: PathBuf,
}

impl Control {
    /// Opens the socket. The data directory is locked: one that is left there is of a process that
    /// ended without removing it.
    pub(crate) fn open(data_dir: &Path) -> Result<Self, String> {
        use std::os::unix::fs::PermissionsExt as _;
        let path = data_dir.join(SOCKET);
        let fail = |error: std::io::Error| {
            format!("Cannot create the control socket {}: {error}", path.display())
        };
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(fail(error)),
            Ok(()) | Err(_) => {}
        }
        let (short, _directory) = reach(&path).map_err(fail)?;
        let listener = UnixListener::bind(short).map_err(fail)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).map_err(fail)?;
        Ok(Self { listener, path })
    }

    /// Answers for ever; to be dropped.
    pub(crate) async fn serve(self, running: Running) {
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(announce(running.cluster.clone()));
        tasks.spawn(admit(running.cluster.clone()));
        loop {
            tokio::select! {
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, _)) if tasks.len() <= CONNECTIONS_MAX => {
                        let running = running.clone();
                        tasks.spawn(async move {
                            if let Err(error) = converse(stream, &running).await {
                                tracing::debug!("control connection failed: {error}");
                            }
                        });
                    }
                    Ok(_) => tracing::warn!(
                        "too many commands are open on the control socket; closed the newest. Repeat it when other \
                         commands have ended"
                    ),
                    Err(error) => {
                        tracing::warn!("cannot accept a connection on the control socket; trying again: {error}");
                        tokio::time::sleep(PAUSE).await;
                    }
                },
                Some(_) = tasks.join_next() => {}
            }
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // The next start removes it if this does not.
        let _ = std::fs::remove_file(&self.path);
    }
}

async fn converse(stream: UnixStream, running: &Running) -> std::io::Result<()> {
    let (reader, mut writer) = stream.into_split();
    let mut line = String::new();
    let mut reader = BufReader::new(reader.take(REQUEST_BYTES_MAX));
    tokio::time::timeout(TIMEOUT, reader.read_line(&mut line)).await??;
    let request = match serde_json::from_str(&line) {
        Ok(request) => request,
        Err(error) => {
            let answer = Answer::Refused(format!(
                "the node does not understand the request: {error}. Use a \
                 `millrace` of the same version as the node"
            ));
            return say(&mut writer, &answer).await;
        }
    };
    let (words, mut told) = mpsc::channel(WORDS_MAX);
    let order = tokio::time::timeout(ORDER, orders::carry_out(request, running, words));
    tokio::pin!(order);
    loop {
        tokio::select! {
            biased;
            Some(words) = told.recv() => say(&mut writer, &Answer::Progress(words)).await?,
            done = &mut order => {
                let late = || Answer::Refused(format!(
                    "the command has not finished after {} seconds; the node goes on with what it has begun. See \
                     millrace cluster status, then repeat the command",
                    ORDER.as_secs()
                ));
                return say(&mut writer, &done.unwrap_or_else(|_| late())).await;
            }
        }
    }
}

async fn say(writer: &mut OwnedWriteHalf, answer: &Answer) -> std::io::Result<()> {
    let mut text = serde_json::to_vec(answer)?;
    if matches!(answer, Answer::Described(_)) && text.len() > DESCRIPTION_BYTES_MAX {
        let why = "the description is too long. Ask for fewer lines, with --limit".to_owned();
        text = serde_json::to_vec(&Answer::Refused(why))?;
    }
    text.push(b'\n');
    writer.write_all(&text).await
}

/// Tells the cluster where this node is and which life it lives, until everybody knows.
async fn announce(cluster: ClusterHandle) {
    while let Some(ours) = cluster.unannounced() {
        match orders::announce(&cluster, ours).await {
            Ok(()) => return,
            Err(why) => {
                tracing::debug!("cannot announce this node to its cluster; trying again: {why}")
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Takes in nodes that want to join.
async fn admit(cluster: ClusterHandle) {
    let Some(mut admissions) = cluster.admissions() else { return };
    while let Some(Admission { node, reply }) = admissions.recv().await {
        let answer = orders::admit(&cluster, node).await;
        // It may have gone meanwhile; then it asks again.
        let _ = reply.send(answer);
    }
}

/// Asks the node that runs in `data_dir`. What it says before it answers goes to `progress`.
pub(crate) fn ask(
    data_dir: &Path,
    request: &Request,
    progress: impl Fn(&str),
) -> Result<Answer, String> {
    use std::io::{BufRead as _, BufReader, Write as _};
    let path = data_dir.join(SOCKET);
    let connected =
        reach(&path).and_then(|(short, _directory)| std::os::unix::net::UnixStream::connect(short));
    let mut stream = connected.map_err(|error| {
        format!(
            "No node answers at {}: {error}. Name the data directory of a running node of this machine \
             with --data-dir DIR",
            path.display()
        )
    })?;
    let mut text = serde_json::to_vec(request).map_err(|error| error.to_string())?;
    text.push(b'\n');
    let silent = |error: std::io::Error| format!("The node does not answer: {error}");
    let timeout = Some(ORDER + TIMEOUT);
    let asked = stream.set_read_timeout(timeout).and_then(|()| stream.write_all(&text));
    asked.map_err(silent)?;
    for line in BufReader::new(stream).lines() {
        let line = line.map_err(silent)?;
        match serde_json::from_str(&line) {
            Ok(Answer::Progress(words)) => progress(&words),
            Ok(answer) => return Ok(answer),
            Err(error) => {
                return Err(format!(
                    "The node's answer cannot be read: {error}. Use a `millrace` of the \
                 same version as the node"
                ));
            }
        }
    }
    Err("The node stopped before it answered: see its log, then repeat the command".to_owned())
}
