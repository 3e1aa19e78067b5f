//! F14: a data directory that comes back older than it was, and one that two processes run on.

use std::path::Path;
use std::time::{Duration, Instant};

use super::{Bite, World};
use crate::chaos::Failure;
use crate::chaos::broker::{Broker, Place, Setup, speaks_amqp, tail};
use crate::chaos::flaky_disk::mounted::tool;
use crate::chaos::net::NODES;

/// How long a node may take to hear that it is refused.
const REFUSED: Duration = Duration::from_secs(60);
/// Where the second process on one host listens for clients, peers and operators. With a port of the first it would
/// be refused for that, before anybody looks at its directory.
const TWIN_PORTS: (u16, u16, u16) = (5673, 7001, 15673);

/// A node comes back with the directory of an earlier start. It must be told so and end; with the
/// newest one it is a member again.
pub(super) fn old_copy(world: &mut World<'_>) -> Result<Bite, Failure> {
    let node = if world.chance.percent(50) { world.leader()? } else { world.any_node() };
    let newest = world.cluster.node(node).setup.data.clone();
    let (copy, aside) = (newest.with_extension("copy"), newest.with_extension("newest"));
    world.cluster.node(node).kill()?;
    copy_directory(&newest, &copy)?;
    world.cluster.node(node).start()?;
    // Its start is known to the others, and it has what is in no copy.
    world.cluster.wait_ready(REFUSED)?;
    std::thread::sleep(world.a_while());
    world.cluster.node(node).kill()?;
    std::fs::rename(&newest, &aside)?;
    std::fs::rename(&copy, &newest)?;
    let refused = must_be_refused(world.cluster.node(node), &["is an old copy"]);
    std::fs::rename(&newest, &copy)?;
    std::fs::rename(&aside, &newest)?;
    std::fs::remove_dir_all(&copy)?;
    let after = refused?;
    world.cluster.node(node).start()?;
    let ms = after.as_millis();
    Bite::at(node, format!("node {node} with an old directory was refused after {ms} ms"))
}

/// A node comes back with an older directory of the same start, as a copy of a running machine is. If the node has
/// renewed its stamp since, the copy must be told so and end. Nobody can tell a younger copy by its greeting: it must
/// get what it has forgotten, and help nobody to lead before.
pub(super) fn forgetful_copy(world: &mut World<'_>) -> Result<Bite, Failure> {
    let node = if world.chance.percent(50) { world.leader()? } else { world.any_node() };
    let newest = world.cluster.node(node).setup.data.clone();
    let copy = newest.with_extension("copy");
    copy_running(world, node, &copy)?;
    // Others lead what it led. While nobody does, a node that has forgotten cannot hear of it before it votes.
    world.cluster.wait_ready(REFUSED)?;
    std::thread::sleep(world.a_while());
    world.cluster.node(node).kill()?;
    let aside = newest.with_extension("newest");
    std::fs::rename(&newest, &aside)?;
    std::fs::rename(&copy, &newest)?;
    let begun = Instant::now();
    let is_let_in = is_let_in(world.cluster.node(node))?;
    if !is_let_in {
        std::fs::remove_dir_all(&newest)?;
        std::fs::rename(&aside, &newest)?;
        world.cluster.node(node).start()?;
    }
    world.cluster.wait_ready(REFUSED)?;
    let ms = begun.elapsed().as_millis();
    if !is_let_in {
        return Bite::at(node, format!("node {node} forgot its last seconds and was refused"));
    }
    std::fs::remove_dir_all(&aside)?;
    Bite::at(node, format!("node {node} forgot its last seconds and was whole after {ms} ms"))
}

/// Starts it. False: it ended, because its directory is an old copy.
fn is_let_in(broker: &mut Broker) -> Result<bool, Failure> {
    let written = std::fs::metadata(&broker.setup.log)?.len();
    broker.start()?;
    serves_or_is_old(broker, written)
}

/// The same of one that runs, and whose log had so many bytes before.
fn serves_or_is_old(broker: &mut Broker, written: u64) -> Result<bool, Failure> {
    match broker.wait_ready(REFUSED) {
        Ok(_) => Ok(true),
        Err(_) if said_since(&broker.setup.log, written)?.contains("is an old copy") => {
            broker.kill()?;
            Ok(false)
        }
        Err(failure) => Err(failure),
    }
}

/// As a whole: while it stands still its directory is as after a crash.
fn copy_running(world: &mut World<'_>, node: u32, to: &Path) -> Result<(), Failure> {
    super::processes::stop(world, node)?;
    let copied = copy_directory(&world.cluster.node(node).setup.data, to);
    world.cluster.node(node).go_on()?;
    copied
}

/// Starts it, and waits for it to end by itself with these words.
fn must_be_refused(broker: &mut Broker, words: &[&str]) -> Result<Duration, Failure> {
    let written = std::fs::metadata(&broker.setup.log)?.len();
    let begun = Instant::now();
    broker.start()?;
    let status = match broker.wait_exit(REFUSED) {
        Ok(status) => status,
        Err(failure) => {
            broker.kill()?;
            return Err(failure);
        }
    };
    let said = said_since(&broker.setup.log, written)?;
    if status.success() || !words.iter().any(|words| said.contains(words)) {
        let last = tail(&broker.setup.log);
        return Err(Failure::Broken(format!("ended with {status}, not with {words:?}:\n{last}")));
    }
    Ok(begun.elapsed())
}

/// A second process on a copy of a node's directory, beside the first: it is not let in, serves
/// nobody, and the first does not notice.
pub(super) fn twin(world: &mut World<'_>) -> Result<Bite, Failure> {
    // Node 1 dials nobody: its twin, at another port, would only wait.
    let node = world.chance.within(2, u64::from(NODES) + 1) as u32;
    let setup = twin_of(&world.cluster.node(node).setup);
    copy_running(world, node, &setup.data)?;
    let mut twin = Broker::new(setup);
    let refused = must_wait(&mut twin, world.a_while());
    twin.kill()?;
    std::fs::remove_dir_all(&twin.setup.data)?;
    let after = refused?;
    if let Some(status) = world.cluster.node(node).exited()? {
        return Err(Failure::Broken(format!("node {node} ended for its twin: {status}")));
    }
    let ms = after.as_millis();
    Bite::at(node, format!("a twin of node {node} was refused after {ms} ms"))
}

/// The first of two processes on copies of a directory dies, and the second takes its place. From then on the
/// first one's directory is the old copy.
pub(super) fn twin_takes_over(world: &mut World<'_>) -> Result<Bite, Failure> {
    // The last one dials all others; they would dial any other where it was.
    let node = NODES;
    let setup = twin_of(&world.cluster.node(node).setup);
    let own = world.cluster.node(node).setup.data.clone();
    copy_running(world, node, &setup.data)?;
    let mut twin = Broker::new(setup);
    must_wait(&mut twin, Duration::ZERO)?;
    world.cluster.node(node).kill()?;
    if !serves_or_is_old(&mut twin, 0)? {
        // The first one has renewed its stamp before it died.
        std::fs::remove_dir_all(&twin.setup.data)?;
        world.cluster.node(node).start()?;
        world.cluster.wait_ready(REFUSED)?;
        return Bite::at(node, format!("node {node} died, and its twin was an old copy"));
    }
    std::thread::sleep(world.a_while());
    must_be_refused(world.cluster.node(node), &["is an old copy", "is here already"])?;
    twin.kill()?;
    std::fs::remove_dir_all(&own)?;
    std::fs::rename(&twin.setup.data, &own)?;
    world.cluster.node(node).start()?;
    world.cluster.wait_ready(REFUSED)?;
    Bite::at(node, format!("node {node} died, its twin took its place, and it was refused"))
}

/// A process with the same number on the same host, with ports and a directory of its own.
fn twin_of(setup: &Setup) -> Setup {
    let (port, peer_port, http_port) = TWIN_PORTS;
    Setup {
        port,
        node: setup.node.map(|node| Place { peer_port, http_port, ..node }),
        data: setup.data.with_extension("twin"),
        log: setup.log.with_extension("twin.log"),
        ..setup.clone()
    }
}

/// Starts it, and holds it to this: it says that it is refused, and no client is let in for a while. It ends if the
/// other has renewed its stamp since the directory was copied.
fn must_wait(twin: &mut Broker, time: Duration) -> Result<Duration, Failure> {
    let begun = Instant::now();
    twin.start()?;
    let is_refused = |twin: &Broker| -> Result<bool, Failure> {
        let said = said_since(&twin.setup.log, 0)?;
        Ok(["is here already", "is an old copy"].iter().any(|words| said.contains(words)))
    };
    while !is_refused(twin)? {
        let last = || tail(&twin.setup.log);
        if begun.elapsed() > REFUSED {
            return Err(Failure::Broken(format!(
                "no node refuses a second process with a copy of the directory:\n{}",
                last()
            )));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let after = begun.elapsed();
    let until = Instant::now() + time;
    while Instant::now() < until {
        if speaks_amqp(twin.setup.address()) {
            return Err(Failure::Broken(
                "a second process with a copy of the directory serves clients".to_owned(),
            ));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(after)
}

pub(super) fn said_since(log: &Path, written: u64) -> Result<String, Failure> {
    let said = std::fs::read(log)?;
    let said = said.get(written as usize..).unwrap_or_default();
    Ok(String::from_utf8_lossy(said).into_owned())
}

/// Everything but the socket that a process answers at.
fn copy_directory(from: &Path, to: &Path) -> Result<(), Failure> {
    let (from, to) = (from.display().to_string(), to.display().to_string());
    tool("cp", &["-a", "--sparse=always", &from, &to]).map(drop)
}
