//! Starts processes on a thread of its own, and sees that none outlives the worker.
//!
//! The kernel kills a child that asked for it when the *thread* that started it ends: so one thread starts them all,
//! and ends with the target. What a child has started itself is killed by the keeper: a shell that is told of every
//! process group, and that kills those that are left when its stdin ends, which happens however the worker ends.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::Stdio;

use tokio::process::{Child, Command};
use tokio::sync::{mpsc, oneshot};

use super::process::Process;

/// What the keeper does.
const KEEPER: &str = r#"
groups=" "
while read -r sign group; do
    case "$sign" in
        +) groups="$groups$group " ;;
        -) case "$groups" in
               *" $group "*) groups="${groups%% "$group" *} ${groups#* "$group" }" ;;
           esac ;;
    esac
done
for group in $groups; do kill -s KILL -- "-$group" 2>/dev/null; done
exit 0
"#;

/// What the thread is asked.
enum Wish {
    Start {
        command: Box<Command>,
        to: oneshot::Sender<Result<Child, String>>,
    },
    /// This process group is gone.
    Gone {
        group: u32,
    },
}

/// Starts processes.
#[derive(Debug)]
pub(super) struct Spawner {
    wishes: mpsc::UnboundedSender<Wish>,
}

/// Tells the keeper that a group is gone, when it is dropped.
#[derive(Debug)]
pub(super) struct Kept {
    wishes: mpsc::UnboundedSender<Wish>,
    group: u32,
}

impl Drop for Kept {
    fn drop(&mut self) {
        // Nobody listens any more: the keeper has ended the group.
        let _ = self.wishes.send(Wish::Gone { group: self.group });
    }
}

impl Spawner {
    /// Starts the thread. It ends when the spawner and all its processes are gone.
    pub(super) fn start() -> Self {
        // Bounded by the processes: each is asked for once, and told gone once.
        let (wishes, asked) = mpsc::unbounded_channel();
        let runtime = tokio::runtime::Handle::current();
        let thread = std::thread::Builder::new().name("programs".into());
        // Without the thread, each wish is answered with an error.
        let started = thread.spawn(move || {
            let _entered = runtime.enter();
            serve(asked);
        });
        if let Err(error) = started {
            tracing::warn!(%error, "no thread for programs: no job of this target can be executed");
        }
        Self { wishes }
    }

    /// Starts a process in a group of its own, with pipes.
    pub(super) async fn spawn(&self, mut command: Command) -> Result<Process, String> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.process_group(0).kill_on_drop(true);
        let (to, answer) = oneshot::channel();
        let ended = || "the thread that starts programs has ended".to_owned();
        self.wishes.send(Wish::Start { command: Box::new(command), to }).map_err(|_| ended())?;
        let child = answer.await.map_err(|_| ended())??;
        let group = child.id().ok_or("the process has ended already")?;
        Process::new(child, Kept { wishes: self.wishes.clone(), group })
    }
}

fn serve(mut asked: mpsc::UnboundedReceiver<Wish>) {
    let mut keeper = Keeper::start();
    while let Some(wish) = asked.blocking_recv() {
        match wish {
            Wish::Start { mut command, to } => {
                let child = command.spawn().map_err(|error| error.to_string());
                if let Some(group) = child.as_ref().ok().and_then(Child::id) {
                    keeper.tell('+', group);
                }
                // A child that nobody waits for any more is killed as it is dropped.
                let _ = to.send(child);
            }
            Wish::Gone { group } => keeper.tell('-', group),
        }
    }
    keeper.end();
}

/// The shell that kills what is left.
struct Keeper {
    shell: Option<std::process::Child>,
}

impl Keeper {
    fn start() -> Self {
        let shell = std::process::Command::new("/bin/sh")
            .args(["-c", KEEPER])
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // A signal to the worker's group is not for it.
            .process_group(0)
            .spawn();
        let shell = shell.inspect_err(|error| {
            tracing::warn!(%error, "/bin/sh was not started: what programs start may outlive a killed worker");
        });
        Self { shell: shell.ok() }
    }

    fn tell(&mut self, sign: char, group: u32) {
        let Some(shell) = &mut self.shell else { return };
        let stdin = shell.stdin.as_mut().expect("it was piped");
        if let Err(error) = writeln!(stdin, "{sign} {group}") {
            tracing::warn!(%error, "the keeper of programs has ended: what programs start may outlive a killed worker");
            self.end();
        }
    }

    fn end(&mut self) {
        if let Some(mut shell) = self.shell.take() {
            drop(shell.stdin.take());
            let _ = shell.wait();
        }
    }
}
