//! What the README tells a newcomer to type, typed.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test of the whole: it starts processes in a directory of their own, and waits"
)]

use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

/// Longer than anything here takes.
const TIMEOUT: Duration = Duration::from_secs(120);

/// A shell in a folder of its own. Both go with the test, and so does everything that the shell has started.
struct Shell {
    dir: PathBuf,
    process: Child,
}

impl Shell {
    fn run(script: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("millrace-readme-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        let output = File::create(dir.join("output")).unwrap();
        let process = Command::new("sh")
            .args(["-e", "-c", script])
            .current_dir(&dir)
            .stdin(Stdio::null())
            .stdout(output)
            .process_group(0)
            .spawn();
        Self { process: process.unwrap(), dir }
    }

    /// What was said when the last command had ended. Nodes in the background go on.
    fn output(&mut self) -> String {
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                break status;
            }
            assert!(begun.elapsed() < TIMEOUT, "the commands do not end");
            std::thread::sleep(Duration::from_millis(20));
        };
        let output = std::fs::read_to_string(self.dir.join("output")).unwrap();
        assert!(status.success(), "{output}");
        output
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = kill_process_group(Pid::from_child(&self.process), Signal::KILL);
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// The block of the README that begins with this line.
fn block(first_line: &str) -> &'static str {
    let readme = include_str!("../../../../README.md");
    let found = readme.split("\n```\n").find(|block| block.starts_with(first_line));
    found.expect("the README has this block")
}

#[test]
fn the_three_nodes_of_the_readme_give_every_message_back() {
    let mut script =
        block("P=1=").replace("target/release/millrace", env!("CARGO_BIN_EXE_millrace"));
    let places = crate::node::addresses::free_addresses(6);
    let (peers, clients) = places.split_at(3);
    // The loop makes its ports from the number of the node.
    script = script.replace("127.0.0.1:568$n", "$(eval echo \\$C$n)");
    for (n, (peer, client)) in (1..).zip(peers.iter().zip(clients)) {
        script = script.replace(&format!("127.0.0.1:700{n}"), peer);
        script = script.replace(&format!("127.0.0.1:568{n}"), client);
        script = format!("C{n}={client}\n{script}");
    }
    assert!(!script.contains(":568") && !script.contains(":700"), "{script}");
    let mut shell = Shell::run(&script);
    let output = shell.output();
    let numbers: Vec<u32> = output.lines().filter_map(|line| line.parse().ok()).collect();
    assert!(numbers.into_iter().eq(1..=1000), "{output}");
}
