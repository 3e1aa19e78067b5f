//! After the heal: every node comes to have what the administrator wants, and sessions are held against it.

use machine::{GroupId, Version};

use super::AGREES;
use super::agenda::{Event, Micros};
use super::world::World;

/// Every node has what the administrator wants within this time.
const SETTLES: Micros = 15_000_000;
/// Once every node has it for so long, nothing is on its way that was asked for before.
const STEADY: Micros = 300_000;
/// What sessions may and may not do is tried within this time.
const EXAMINES: Micros = 200_000_000;
const LOOK: Micros = 50_000;

/// Every node comes to have the policies, rights and limits that the administrator wants in the end, and nothing comes
/// behind that. False: it does not.
pub(super) fn settle(world: &mut World) -> bool {
    let end = world.agenda.now() + SETTLES;
    let mut since: Option<Micros> = None;
    loop {
        let (now, differs) = (world.agenda.now(), differs_from_goal(world));
        since = since.filter(|_| differs.is_none()).or(differs.is_none().then_some(now));
        if since.is_some_and(|since| now - since >= STEADY) {
            world.clients.administration_is_settled(&mut world.diary);
            return true;
        }
        if now > end {
            world.complain(&differs.unwrap_or_else(|| "policies do not come to rest".to_owned()));
            return false;
        }
        world.run_until(now + LOOK, |_| false);
    }
}

/// What sessions may and may not do on these nodes.
pub(super) fn examine(world: &mut World, nodes: &[usize]) {
    if !knows_policies(world) {
        return;
    }
    world.clients.examine(nodes);
    world.agenda.after(1_000, Event::Examiner);
    let end = world.agenda.now() + EXAMINES;
    if !world.run_until(end, |world| world.clients.is_examined()) {
        world.complain("what sessions may do is not tried in time");
    }
    let end = world.agenda.now() + AGREES;
    while let Some(text) = differs_from_goal(world).or_else(|| differs_from_sessions(world)) {
        let soon = world.agenda.now() + LOOK;
        world.run_until(soon, |_| false);
        if world.agenda.now() > end {
            return world.complain(&text);
        }
    }
}

/// Whether the cluster has agreed on a version that knows policies, limits and topic permissions.
fn knows_policies(world: &World) -> bool {
    let mut lives = world.members().filter_map(|node| world.nodes[node].life.as_ref());
    lives.all(|life| life.catalog.agreed() >= Version::POLICIES)
}

/// What is otherwise on some node than the administrator wants it.
fn differs_from_goal(world: &World) -> Option<String> {
    for node in world.members() {
        let Some(life) = &world.nodes[node].life else { continue };
        if let Some(text) = world.clients.differs_from_goal(&life.catalog) {
            return Some(format!("node {}: {text}", node + 1));
        }
    }
    match world.clients.is_administered() {
        // Others come and go meanwhile.
        true => world.queues_differ(|name| world.clients.is_of_load(name)),
        false => Some("the administrator waits for an answer".to_owned()),
    }
}

/// What a node's sessions route by is not what the node's replica of the catalog is, or it counts sessions that are not
/// there.
fn differs_from_sessions(world: &World) -> Option<String> {
    for node in world.members() {
        let Some(life) = &world.nodes[node].life else { continue };
        let reports = life.shards.iter().flat_map(|shard| shard.report_groups(true));
        let mut catalogs = reports.filter(|report| report.group == GroupId::CATALOG);
        if catalogs.any(|report| report.digest != life.catalog.digest()) {
            let node = node + 1;
            return Some(format!("sessions of node {node} route by another catalog than it has"));
        }
        let population = life.population.borrow();
        let census = population.census();
        let counted: u64 = census.users.values().map(|(connections, _)| connections).sum();
        let found = world.clients.sessions_of(node);
        if counted != found as u64 {
            return Some(format!("node {} counts {census:?}, of {found} sessions", node + 1));
        }
    }
    None
}
