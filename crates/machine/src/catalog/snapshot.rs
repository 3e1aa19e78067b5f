//! The catalog to bytes and back. What is derived (routes, indexes) is built again.

use std::collections::{BTreeMap, BTreeSet};

use super::audit::Audit;
use super::before8::{exchange_spec, queue_spec};
use super::binding::Binding;
use super::destination::Destination;
use super::encoding::{
    put_node, put_nodes, put_owner_option, read_node, read_nodes, read_owner_option, read_texts,
    read_version,
};
use super::exchanges::ExchangeSpec;
use super::limits::{UserLimits, VhostLimits};
use super::nodes::{Membership, NodeInfo, WIDE_SINCE, Wide};
use super::policies::{Policy, PolicyKind, PolicySpec, Subject};
use super::queues::{NewQueue, Partition, QueueHome, QueuePause, QueueSpec};
use super::users::{Permissions, TopicPermissions, User};
use super::vhosts::{Vhost, VhostMetadata};
use super::{Catalog, Exchange, ExchangeKind, Queue};
use crate::encoding::{Corrupt, Reader, digest, put_bool, put_text, put_u32, put_u64};
use crate::ids::{GroupId, NodeId, QueueId};
use crate::limits::{GROUPS_MAX, SEQ_MAX};
use crate::producers::Producers;
use crate::value::Arguments;
use crate::version::Version;

/// 2 knows producers of numbered batches, and nodes; 3 what the cluster has agreed on, once that is a version that
/// knows 3; 4 which groups are wide, once that is a version that knows 4; 5 the specs of queues and exchanges,
/// likewise; 6 policies, limits, topic permissions, what operators call things and what they changed, and paused queues,
/// likewise.
const FORMAT: u8 = 6;
/// The first format that holds specs.
const SPECS_SINCE: u8 = 5;
/// The first format that holds policies.
const POLICIES_SINCE: u8 = 6;
/// How the group of every node's memory was written at first.
const LOCAL_OF_ANY: GroupId = GroupId(u32::MAX);

impl Catalog {
    /// Everything that is replicated, versioned.
    pub fn snapshot(&self) -> Vec<u8> {
        // Members of before do not know the newest format.
        let format = match self.agreed {
            agreed if agreed >= Version::POLICIES => FORMAT,
            agreed if agreed >= Version::SPECS => SPECS_SINCE,
            agreed if agreed >= WIDE_SINCE => 4,
            agreed if agreed > Version::FIRST => 3,
            _ => 2,
        };
        let mut out = vec![format];
        if format > 2 {
            put_u32(&mut out, u32::from(self.agreed.0));
        }
        put_u64(&mut out, self.version);
        put_u64(&mut out, self.applied_index);
        put_u32(&mut out, self.group_count);
        put_u64(&mut out, self.next_queue);
        self.producers.encode(&mut out);
        put_membership(&mut out, &self.membership);
        put_u32(&mut out, self.vhosts.len() as u32);
        for vhost in self.vhosts.values() {
            put_vhost(&mut out, vhost, format);
        }
        put_u32(&mut out, self.users.len() as u32);
        for user in self.users.values() {
            put_user(&mut out, user, format);
        }
        if format >= POLICIES_SINCE {
            put_text(&mut out, &self.name);
            put_pauses(&mut out, self);
            self.audit.encode(&mut out);
        }
        out
    }

    /// Total on any bytes. A program that does not read `Version::TRIAL` looks at `agreed` itself.
    pub fn restore(bytes: &[u8]) -> Result<Self, Corrupt> {
        let mut reader = Reader::new(bytes, "a snapshot of the catalog");
        let format = reader.u8()?;
        if !(1..=FORMAT).contains(&format) {
            return Err(Corrupt::newer("a snapshot of the catalog of another version"));
        }
        let agreed = match format {
            1 | 2 => Version::FIRST,
            _ => read_version(&mut reader)?,
        };
        if agreed > Version::TRIAL {
            return Err(Corrupt::newer("a catalog"));
        }
        let version = reader.u64()?;
        let applied_index = reader.u64()?;
        let group_count = reader.u32()?;
        if !(1..=GROUPS_MAX).contains(&group_count) || version > SEQ_MAX {
            return Err(reader.corrupt());
        }
        let next_queue = reader.u64()?;
        if QueueId(next_queue).priority() != 0 {
            return Err(reader.corrupt());
        }
        let (producers, membership) = match format {
            // One node, which did not know that it could be more.
            1 => (Producers::default(), Self::new(group_count).membership),
            2 | 3 => (Producers::read(&mut reader)?, read_membership(&mut reader, group_count)?),
            _ => {
                let producers = Producers::read(&mut reader)?;
                let mut membership = read_membership(&mut reader, group_count)?;
                membership.wide = Some(read_wide(&mut reader, &membership)?);
                (producers, membership)
            }
        };
        let has_specs = format >= SPECS_SINCE;
        if membership.wide.is_some() != (agreed >= WIDE_SINCE)
            || has_specs != (agreed >= Version::SPECS)
            || (format >= POLICIES_SINCE) != (agreed >= Version::POLICIES)
        {
            return Err(reader.corrupt());
        }
        let mut catalog = Self::empty(group_count, membership);
        (catalog.version, catalog.membership_version) = (version, version);
        (catalog.applied_index, catalog.next_queue) = (applied_index, next_queue);
        (catalog.producers, catalog.agreed) = (producers, agreed);
        for _ in 0..reader.u32()? {
            catalog.read_vhost(&mut reader, format)?;
        }
        catalog.count_traced();
        for _ in 0..reader.u32()? {
            let user = read_user(&mut reader, format)?;
            catalog.users.insert(user.name.clone(), user);
        }
        if format >= POLICIES_SINCE {
            catalog.name = reader.string()?;
            catalog.read_pauses(&mut reader)?;
            catalog.audit = Audit::read(&mut reader)?;
        }
        reader.end()?;
        Ok(catalog)
    }

    /// One number for everything that is replicated: equal on all replicas at equal index.
    pub fn digest(&self) -> u64 {
        digest(&self.snapshot())
    }

    fn read_pauses(&mut self, reader: &mut Reader<'_>) -> Result<(), Corrupt> {
        for _ in 0..reader.u32()? {
            let id = QueueId(reader.u64()?);
            let pause = QueuePause::read(reader)?;
            let (vhost, name) = self.queue_names.get(&id).ok_or(reader.corrupt())?;
            let vhost = self.vhosts.get_mut(vhost);
            let queue = vhost.and_then(|vhost| vhost.queues.get_mut(name));
            queue.ok_or(reader.corrupt())?.set_pause(Some(pause));
        }
        Ok(())
    }

    fn read_vhost(&mut self, reader: &mut Reader<'_>, format: u8) -> Result<(), Corrupt> {
        let name = reader.string()?;
        let mut vhost = Vhost::empty(&name);
        if format >= POLICIES_SINCE {
            vhost.metadata = VhostMetadata::read(reader)?;
            vhost.limits = VhostLimits::read(reader)?;
            read_policies(reader, &mut vhost)?;
        }
        for _ in 0..reader.u32()? {
            let mut exchange = match format {
                SPECS_SINCE.. => read_exchange(reader)?,
                _ => read_exchange_before8(reader)?,
            };
            exchange.governed = vhost.policies.govern(Subject::Exchange, &exchange.name);
            vhost.weight += exchange.arguments.weight();
            vhost.exchanges.insert(exchange.name.clone(), exchange);
        }
        self.vhosts.insert(name.clone(), vhost);
        for _ in 0..reader.u32()? {
            let mut queue = match format {
                SPECS_SINCE.. => read_queue(reader, &name)?,
                _ => read_queue_before8(reader, &name)?,
            };
            if !planted::is("policy_not_restored") {
                self.govern_new(&mut queue);
            }
            let is_odd = |Partition { queue: id, group, .. }: Partition| {
                let is_known_group = match queue.node {
                    Some(node) => group == GroupId::local(node),
                    None => (1..=self.group_count).contains(&group.0),
                };
                !is_known_group || id.0 >= self.next_queue || self.queue_names.contains_key(&id)
            };
            let ids: BTreeSet<QueueId> = queue.partitions().map(|it| it.queue).collect();
            if ids.len() != queue.partition_count()
                || queue.partitions().any(is_odd)
                || self.queue(&name, &queue.name).is_some()
            {
                return Err(reader.corrupt());
            }
            self.insert_queue(queue);
        }
        let Some(vhost) = self.vhosts.get_mut(&name) else { return Err(reader.corrupt()) };
        for _ in 0..reader.u32()? {
            let binding = Binding {
                source: reader.string()?,
                destination: Destination::read(reader)?,
                key: reader.string()?,
                arguments: Arguments::read(reader)?,
            };
            if !vhost.bind(binding) {
                return Err(reader.corrupt());
            }
        }
        Ok(())
    }
}

fn put_membership(out: &mut Vec<u8>, membership: &Membership) {
    put_u32(out, membership.groups_per_node);
    put_u32(out, membership.nodes.len() as u32);
    for NodeInfo { node, address, incarnation } in membership.nodes.values() {
        put_u64(out, node.0);
        put_text(out, address);
        put_u64(out, *incarnation);
    }
    for voters in membership.voters.iter().chain(&membership.founders) {
        put_nodes(out, voters);
    }
    put_nodes(out, &membership.retired.iter().copied().collect::<Vec<_>>());
    if let Some(Wide { per_node, groups }) = &membership.wide {
        put_u32(out, *per_node);
        put_u32(out, groups.len() as u32);
        groups.iter().for_each(|group| put_u32(out, group.0));
    }
}

fn read_wide(reader: &mut Reader<'_>, membership: &Membership) -> Result<Wide, Corrupt> {
    let per_node = reader.u32()?;
    let mut groups = BTreeSet::new();
    for _ in 0..reader.u32()? {
        let group = GroupId(reader.u32()?);
        let is_of_queues = (1..membership.voters.len()).contains(&(group.0 as usize));
        let is_next = groups.last().is_none_or(|last| *last < group);
        if !is_of_queues || !is_next {
            return Err(reader.corrupt());
        }
        groups.insert(group);
    }
    if per_node > membership.groups_per_node {
        return Err(reader.corrupt());
    }
    Ok(Wide { per_node, groups })
}

fn read_membership(reader: &mut Reader<'_>, group_count: u32) -> Result<Membership, Corrupt> {
    let groups_per_node = reader.u32()?;
    if !(1..=GROUPS_MAX).contains(&groups_per_node) {
        return Err(reader.corrupt());
    }
    let mut nodes = BTreeMap::new();
    for _ in 0..reader.u32()? {
        let node = NodeId(reader.u64()?);
        let (address, incarnation) = (reader.string()?, reader.u64()?);
        nodes.insert(node, NodeInfo { node, address, incarnation });
    }
    let mut voters = Vec::new();
    let mut founders = Vec::new();
    for nth in 0..2 * (u64::from(group_count) + 1) {
        let is_now = nth <= u64::from(group_count);
        let of_group = read_nodes(reader)?;
        let is_distinct = of_group.iter().collect::<BTreeSet<_>>().len() == of_group.len();
        let are_nodes = !is_now || of_group.iter().all(|node| nodes.contains_key(node));
        if of_group.is_empty() || !is_distinct || !are_nodes {
            return Err(reader.corrupt());
        }
        if is_now { voters.push(of_group) } else { founders.push(of_group) }
    }
    let retired = read_nodes(reader)?;
    if !retired.is_sorted_by(|one, next| one < next) {
        return Err(reader.corrupt());
    }
    let retired = retired.into_iter().collect();
    Ok(Membership { groups_per_node, nodes, retired, voters, founders, wide: None })
}

fn put_vhost(out: &mut Vec<u8>, vhost: &Vhost, format: u8) {
    put_text(out, &vhost.name);
    if format >= POLICIES_SINCE {
        vhost.metadata.encode(out);
        vhost.limits.encode(out);
        put_policies(out, vhost);
    }
    put_u32(out, vhost.exchanges.len() as u32);
    for exchange in vhost.exchanges.values() {
        match format {
            SPECS_SINCE.. => put_exchange(out, exchange),
            _ => put_exchange_before8(out, exchange),
        }
    }
    put_u32(out, vhost.queues.len() as u32);
    for queue in vhost.queues.values() {
        match format {
            SPECS_SINCE.. => put_queue(out, queue),
            _ => put_queue_before8(out, queue),
        }
    }
    put_u32(out, vhost.bindings().count() as u32);
    for binding in vhost.bindings() {
        put_text(out, &binding.source);
        binding.destination.encode(out);
        put_text(out, &binding.key);
        binding.arguments.encode(out);
    }
}

fn put_policies(out: &mut Vec<u8>, vhost: &Vhost) {
    for kind in [PolicyKind::User, PolicyKind::Operator] {
        put_u32(out, vhost.policies(kind).count() as u32);
        for policy in vhost.policies(kind) {
            put_text(out, &policy.name);
            policy.spec.encode(out);
        }
    }
}

fn read_policies(reader: &mut Reader<'_>, vhost: &mut Vhost) -> Result<(), Corrupt> {
    for kind in [PolicyKind::User, PolicyKind::Operator] {
        for _ in 0..reader.u32()? {
            let name = reader.string()?;
            let policy = Policy::accepted(name, PolicySpec::read(reader)?);
            vhost.weight += policy.spec.definition.weight();
            vhost.policies.insert(kind, policy);
        }
    }
    Ok(())
}

fn put_pauses(out: &mut Vec<u8>, catalog: &Catalog) {
    let paused = || catalog.queues().filter_map(|queue| Some((queue.id, queue.pause()?)));
    put_u32(out, paused().count() as u32);
    for (id, pause) in paused() {
        put_u64(out, id.0);
        pause.encode(out);
    }
}

fn put_exchange(out: &mut Vec<u8>, exchange: &Exchange) {
    put_text(out, &exchange.name);
    for flag in [exchange.durable, exchange.auto_delete, exchange.internal] {
        put_bool(out, flag);
    }
    put_node(out, exchange.node);
    exchange.spec.encode(out);
    exchange.arguments.encode(out);
}

fn read_exchange(reader: &mut Reader<'_>) -> Result<Exchange, Corrupt> {
    let name = reader.string()?;
    let (durable, auto_delete, internal) = (reader.bool()?, reader.bool()?, reader.bool()?);
    let node = read_node(reader)?;
    let spec = ExchangeSpec::read(reader)?;
    Ok(Exchange::new(name, spec, Arguments::read(reader)?)
        .with_flags(durable, auto_delete, internal)
        .of_node(node))
}

fn put_exchange_before8(out: &mut Vec<u8>, exchange: &Exchange) {
    put_text(out, &exchange.name);
    out.push(exchange.spec.kind.number());
    for flag in [exchange.durable, exchange.auto_delete, exchange.internal] {
        put_bool(out, flag);
    }
    exchange.arguments.encode(out);
    put_node(out, exchange.node);
}

fn read_exchange_before8(reader: &mut Reader<'_>) -> Result<Exchange, Corrupt> {
    let name = reader.string()?;
    let kind = ExchangeKind::from_number(reader.u8()?).ok_or(reader.corrupt())?;
    let (durable, auto_delete, internal) = (reader.bool()?, reader.bool()?, reader.bool()?);
    let arguments = Arguments::read(reader)?;
    let node = read_node(reader)?;
    Ok(Exchange::new(name, exchange_spec(kind, &arguments), arguments)
        .with_flags(durable, auto_delete, internal)
        .of_node(node))
}

fn put_queue(out: &mut Vec<u8>, queue: &Queue) {
    put_text(out, &queue.name);
    put_u64(out, queue.id.0);
    put_u32(out, queue.group.0);
    queue.home().encode(out);
    queue.spec.encode(out);
    put_u64(out, queue.revision);
    queue.arguments.encode(out);
    queue.partitions().skip(1).for_each(|partition| partition.encode(out));
}

fn read_queue(reader: &mut Reader<'_>, vhost: &str) -> Result<Queue, Corrupt> {
    let (name, id, group) = (reader.string()?, QueueId(reader.u64()?), GroupId(reader.u32()?));
    let home = QueueHome::read(reader)?;
    let spec = QueueSpec::read_for(home, reader)?;
    let revision = reader.u64()?;
    let arguments = Arguments::read(reader)?;
    let new = NewQueue { vhost: vhost.to_owned(), name, home, spec, arguments };
    let mut queue = Queue::new(id, group, new);
    queue.revision = revision;
    for _ in 1..queue.spec.partitions {
        queue.more.push(Partition::read(reader)?);
    }
    // What it says to publishers follows from its partitions, too.
    queue.govern(queue.spec.clone(), None);
    Ok(queue)
}

fn put_queue_before8(out: &mut Vec<u8>, queue: &Queue) {
    put_text(out, &queue.name);
    put_u64(out, queue.id.0);
    put_u32(out, queue.group.0);
    put_bool(out, queue.durable);
    put_bool(out, queue.auto_delete);
    put_owner_option(out, queue.exclusive);
    put_node(out, queue.node);
    queue.arguments.encode(out);
}

fn read_queue_before8(reader: &mut Reader<'_>, vhost: &str) -> Result<Queue, Corrupt> {
    let (name, id, group) = (reader.string()?, QueueId(reader.u64()?), GroupId(reader.u32()?));
    let (durable, auto_delete) = (reader.bool()?, reader.bool()?);
    let home = match (read_owner_option(reader)?, read_node(reader)?) {
        (Some(owner), _) => QueueHome::Session(owner),
        (None, Some(node)) => QueueHome::Node(node),
        (None, None) => QueueHome::Group,
    };
    let arguments = Arguments::read(reader)?;
    let group = match home.node() {
        Some(node) if group == LOCAL_OF_ANY => GroupId::local(node),
        Some(_) | None => group,
    };
    let spec = queue_spec(durable, auto_delete, &arguments);
    Ok(Queue::new(id, group, NewQueue { vhost: vhost.to_owned(), name, home, spec, arguments }))
}

fn put_user(out: &mut Vec<u8>, user: &User, format: u8) {
    put_text(out, &user.name);
    put_text(out, &user.password_hash);
    put_u32(out, user.tags.len() as u32);
    for tag in &user.tags {
        put_text(out, tag);
    }
    put_u32(out, user.permissions.len() as u32);
    for (vhost, permissions) in &user.permissions {
        put_text(out, vhost);
        for pattern in [&permissions.configure, &permissions.write, &permissions.read] {
            put_text(out, pattern.text());
        }
    }
    if format < POLICIES_SINCE {
        return;
    }
    user.limits.encode(out);
    put_u32(out, user.all_topic_permissions().count() as u32);
    for (vhost, exchange, permissions) in user.all_topic_permissions() {
        for text in [vhost, exchange, permissions.write.text(), permissions.read.text()] {
            put_text(out, text);
        }
    }
}

fn read_user(reader: &mut Reader<'_>, format: u8) -> Result<User, Corrupt> {
    let name = reader.string()?;
    let password_hash = reader.string()?;
    let tags = read_texts(reader)?;
    let mut user = User::new(name, password_hash, tags);
    for _ in 0..reader.u32()? {
        let vhost = reader.string()?;
        let texts = [reader.text()?, reader.text()?, reader.text()?];
        user.permissions.insert(vhost, Permissions::accepted(texts));
    }
    if format < POLICIES_SINCE {
        return Ok(user);
    }
    user.limits = UserLimits::read(reader)?;
    for _ in 0..reader.u32()? {
        let (vhost, exchange) = (reader.string()?, reader.string()?);
        let texts = [reader.text()?, reader.text()?];
        let permissions = TopicPermissions::accepted(&user.name, &vhost, texts);
        user.topic_permissions.entry(vhost).or_default().insert(exchange, permissions);
    }
    Ok(user)
}
