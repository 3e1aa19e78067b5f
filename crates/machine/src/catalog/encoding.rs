//! What commands and snapshots of the catalog are made of: nodes, owners, versions and texts, as bytes.

use crate::encoding::{Corrupt, Reader, put_bool, put_u32, put_u64};
use crate::ids::{NodeId, SessionId, SessionOwner};
use crate::version::Version;

pub(in crate::catalog) fn put_owner(out: &mut Vec<u8>, owner: SessionOwner) {
    put_u64(out, owner.node.0);
    put_u64(out, owner.session.0);
}

pub(in crate::catalog) fn read_owner(reader: &mut Reader<'_>) -> Result<SessionOwner, Corrupt> {
    Ok(SessionOwner { node: NodeId(reader.u64()?), session: SessionId(reader.u64()?) })
}

pub(super) fn put_owner_option(out: &mut Vec<u8>, owner: Option<SessionOwner>) {
    put_bool(out, owner.is_some());
    if let Some(owner) = owner {
        put_owner(out, owner);
    }
}

pub(super) fn read_owner_option(reader: &mut Reader<'_>) -> Result<Option<SessionOwner>, Corrupt> {
    if reader.bool()? { read_owner(reader).map(Some) } else { Ok(None) }
}

pub(super) fn put_node(out: &mut Vec<u8>, node: Option<NodeId>) {
    put_bool(out, node.is_some());
    if let Some(node) = node {
        put_u64(out, node.0);
    }
}

pub(super) fn read_node(reader: &mut Reader<'_>) -> Result<Option<NodeId>, Corrupt> {
    if reader.bool()? { Ok(Some(NodeId(reader.u64()?))) } else { Ok(None) }
}

pub(super) fn read_version(reader: &mut Reader<'_>) -> Result<Version, Corrupt> {
    u16::try_from(reader.u32()?).map(Version).map_err(|_| reader.corrupt())
}

pub(super) fn put_nodes(out: &mut Vec<u8>, nodes: &[NodeId]) {
    put_u32(out, nodes.len() as u32);
    for node in nodes {
        put_u64(out, node.0);
    }
}

pub(super) fn read_nodes(reader: &mut Reader<'_>) -> Result<Vec<NodeId>, Corrupt> {
    let mut nodes = Vec::new();
    for _ in 0..reader.u32()? {
        nodes.push(NodeId(reader.u64()?));
    }
    Ok(nodes)
}

pub(super) fn read_texts(reader: &mut Reader<'_>) -> Result<Vec<String>, Corrupt> {
    let mut texts = Vec::new();
    for _ in 0..reader.u32()? {
        texts.push(reader.string()?);
    }
    Ok(texts)
}
