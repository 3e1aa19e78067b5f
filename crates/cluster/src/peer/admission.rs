//! A node that wants to join asks a member over the peer port, after both have proved the secret:
//! its address goes one way, what it needs to begin comes back.

use machine::{NodeId, NodeInfo};

use super::Error;
use super::frame::{Frame, Kind};
use super::gather::Gather;
use super::reader::Reader;

/// Bytes of an address.
const ADDRESS_BYTES_MAX: usize = machine::limits::ADDRESS_BYTES_MAX;

/// What a node begins with that joins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// How the cluster began: groups of queues that each node brings, and its first nodes.
    pub groups_per_node: u32,
    pub founders: Vec<(NodeId, String)>,
    /// Everybody now, the new node too.
    pub members: Vec<NodeInfo>,
}

/// The address of a node that wants to join.
pub fn encode_enter(out: &mut Gather, address: &str) -> Result<(), Error> {
    out.begin(Kind::Enter);
    out.blob(address.as_bytes());
    out.end()
}

pub fn decode_enter(frame: Frame) -> Result<String, Error> {
    let mut reader = open(frame, Kind::Enter, "a request to join")?;
    let address = text(&mut reader)?;
    reader.end()?;
    Ok(address)
}

impl Admitted {
    pub fn encode(&self, out: &mut Gather) -> Result<(), Error> {
        let Self { groups_per_node, founders, members } = self;
        out.begin(Kind::Entered);
        out.number(u64::from(*groups_per_node));
        out.count(founders.len());
        for (node, address) in founders {
            out.number(node.0);
            out.blob(address.as_bytes());
        }
        out.count(members.len());
        for NodeInfo { node, address, incarnation } in members {
            out.number(node.0);
            out.blob(address.as_bytes());
            out.number(*incarnation);
        }
        out.end()
    }

    pub fn decode(frame: Frame) -> Result<Self, Error> {
        let mut reader = open(frame, Kind::Entered, "an admission")?;
        let groups_per_node = reader.u32()?;
        let mut founders = Vec::new();
        for _ in 0..reader.count(2)? {
            founders.push((NodeId(reader.number()?), text(&mut reader)?));
        }
        let mut members = Vec::new();
        for _ in 0..reader.count(3)? {
            let (node, address) = (NodeId(reader.number()?), text(&mut reader)?);
            members.push(NodeInfo { node, address, incarnation: reader.number()? });
        }
        reader.end()?;
        Ok(Self { groups_per_node, founders, members })
    }
}

fn open(frame: Frame, kind: Kind, what: &'static str) -> Result<Reader, Error> {
    if frame.kind != kind {
        return Err(Error::Malformed("a frame of another kind"));
    }
    Ok(Reader::new(frame.body, what))
}

/// An address: text without spaces.
fn text(reader: &mut Reader) -> Result<String, Error> {
    let bytes = reader.payload()?;
    let text = str::from_utf8(&bytes).map_err(|_| reader.malformed())?;
    let is_plain = text.chars().all(|letter| matches!(letter, '!'..='~'));
    if text.len() > ADDRESS_BYTES_MAX || !is_plain {
        return Err(reader.malformed());
    }
    Ok(text.to_owned())
}
