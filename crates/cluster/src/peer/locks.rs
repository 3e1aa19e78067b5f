//! Questions about locks between nodes, and their answers. What is in them is `machine`'s.

use bytes::Bytes;
use machine::{LockCommand, LockReply, Version};

use super::Error;
use super::gather::Gather;
use super::reader::Reader;
use crate::locked::{LockQuestion, LockResult, LockSpec, NotLocked};

const DO: u8 = 1;
const READ: u8 = 2;
/// `READ` once the value is another than this.
const WATCH: u8 = 3;
const LIST: u8 = 4;

pub(super) fn encode_spec(out: &mut Gather, spec: &LockSpec) {
    let LockSpec { what, wait_ms, is_again } = spec;
    out.number(u64::from(*wait_ms));
    out.bool(*is_again);
    match what {
        LockQuestion::Do(command) => {
            out.u8(DO);
            let mut bytes = Vec::new();
            command.encode(&mut bytes);
            out.blob(&bytes);
        }
        LockQuestion::Read { vhost, name, unlike } => {
            out.u8(if unlike.is_some() { WATCH } else { READ });
            out.blob(vhost.as_bytes());
            out.blob(name.as_bytes());
            unlike.iter().for_each(|version| out.number(*version));
        }
        LockQuestion::List { vhost, behind, count } => {
            out.u8(LIST);
            out.blob(vhost.as_bytes());
            out.blob(behind.as_bytes());
            out.number(u64::from(*count));
        }
    }
}

pub(super) fn decode_spec(reader: &mut Reader) -> Result<LockSpec, Error> {
    let (wait_ms, is_again) = (reader.u32()?, reader.bool()?);
    let what = match reader.u8()? {
        DO => {
            let bytes = reader.payload()?;
            match LockCommand::decode(&bytes) {
                Ok(command) if !command.is_of_leader() => LockQuestion::Do(command),
                Ok(_) | Err(_) => return Err(reader.malformed()),
            }
        }
        kind @ (READ | WATCH) => {
            let (vhost, name) = (take_text(reader)?, take_text(reader)?);
            let unlike = if kind == WATCH { Some(reader.number()?) } else { None };
            LockQuestion::Read { vhost, name, unlike }
        }
        LIST => {
            let (vhost, behind) = (take_text(reader)?, take_text(reader)?);
            LockQuestion::List { vhost, behind, count: reader.u32()? }
        }
        _ => return Err(reader.malformed()),
    };
    Ok(LockSpec { what, wait_ms, is_again })
}

pub(super) fn encode_result(out: &mut Gather, result: &LockResult) {
    match result {
        Ok(reply) => {
            out.u8(0);
            let mut bytes = Vec::new();
            reply.encode(&mut bytes);
            out.blob(&bytes);
        }
        Err(NotLocked::NotYet { since }) => {
            out.u8(1);
            out.number(u64::from(since.0));
        }
        Err(NotLocked::Busy) => out.u8(2),
        Err(NotLocked::Unknown) => out.u8(3),
        Err(NotLocked::NoLeader) => out.u8(4),
        Err(NotLocked::Late) => out.u8(5),
    }
}

pub(super) fn decode_result(reader: &mut Reader) -> Result<LockResult, Error> {
    Ok(match reader.u8()? {
        0 => {
            let bytes = reader.payload()?;
            Ok(Box::new(LockReply::decode(&bytes).map_err(|_| reader.malformed())?))
        }
        1 => {
            let since = u16::try_from(reader.number()?).map_err(|_| reader.malformed())?;
            Err(NotLocked::NotYet { since: Version(since) })
        }
        2 => Err(NotLocked::Busy),
        3 => Err(NotLocked::Unknown),
        4 => Err(NotLocked::NoLeader),
        5 => Err(NotLocked::Late),
        _ => return Err(reader.malformed()),
    })
}

fn take_text(reader: &mut Reader) -> Result<String, Error> {
    let bytes: Bytes = reader.payload()?;
    String::from_utf8(bytes.into()).map_err(|_| reader.malformed())
}
