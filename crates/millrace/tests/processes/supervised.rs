//! What a service manager hears of a node, on the socket that `NOTIFY_SOCKET` names.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test of the whole: it starts processes in directories of their own, and waits"
)]

use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::node::{TIMEOUT, free_address};

/// A node, its manager's socket and its directory: all end with the test.
struct Supervised {
    process: Child,
    socket: UnixDatagram,
    dir: PathBuf,
}

impl Supervised {
    fn start(name: &str, arguments: &[&str]) -> Self {
        let dir = std::env::temp_dir().join(format!("millrace-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        let process = Command::new(env!("CARGO_BIN_EXE_millrace"))
            .args(["serve", "--set", "log=error", "--amqp", "127.0.0.1:0", "--data-dir"])
            .arg(dir.join("data"))
            .args(arguments)
            .env("NOTIFY_SOCKET", &path)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Self { process, socket, dir }
    }

    /// The next message.
    fn says(&self) -> String {
        let mut message = [0; 1024];
        let count = self.socket.recv(&mut message).unwrap();
        String::from_utf8_lossy(&message[..count]).into_owned()
    }

    fn terminate(&self) {
        kill_process(Pid::from_child(&self.process), Signal::TERM).unwrap();
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

#[test]
fn a_service_manager_hears_that_a_node_is_ready_and_that_it_stops() {
    let mut node = Supervised::start("supervised", &[]);
    assert!(node.says().starts_with("STATUS=Waiting until its groups can serve"));
    let ready = node.says();
    assert!(ready.starts_with("READY=1\nSTATUS=Serving AMQP 0-9-1 on 127.0.0.1:"), "{ready}");
    node.terminate();
    assert!(node.says().starts_with("STOPPING=1\n"));
    assert!(node.process.wait().unwrap().success());
}

#[test]
fn a_service_manager_hears_why_a_node_without_a_majority_is_not_ready() {
    let peers = format!("1={},2={}", free_address(), free_address());
    let node = Supervised::start("supervised-alone", &["--node-id", "1", "--peers", &peers]);
    let said = node.says();
    assert!(said.contains("takes a majority of the nodes") && !said.contains("READY"), "{said}");
}
