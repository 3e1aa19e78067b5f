//! Locks to bytes and back: a part of the snapshot of a group's queues, from its format 7 on.

use std::sync::Arc;

use super::{Held, Lock, Locks, Written};
use crate::encoding::{Corrupt, Reader, put_blob, put_bool, put_text, put_u32, put_u64};

impl Locks {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_u64(out, self.term);
        put_u32(out, self.count as u32);
        for (vhost, of_vhost) in &self.vhosts {
            for (name, lock) in &of_vhost.locks {
                put_text(out, vhost);
                put_text(out, name);
                lock.encode(out);
            }
        }
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
        let mut locks = Self { term: reader.u64()?, ..Self::default() };
        let mut before: Option<(&str, &str)> = None;
        for _ in 0..reader.u32()? {
            let key = (reader.text()?, reader.text()?);
            if before >= Some(key) {
                return Err(reader.corrupt());
            }
            before = Some(key);
            let lock = Lock::read(reader)?;
            if lock.is_nothing() {
                return Err(reader.corrupt());
            }
            locks.put_back(key, lock);
        }
        Ok(locks)
    }

    /// Whatever the bounds are now: it was within those of the program that took it.
    fn put_back(&mut self, (vhost, name): (&str, &str), lock: Lock) {
        let (vhost_key, name_key): (Arc<str>, Arc<str>) = (Arc::from(vhost), Arc::from(name));
        if let Some(held) = &lock.held {
            self.ends.insert((held.until_ms, Arc::clone(&vhost_key), Arc::clone(&name_key)));
        }
        let bytes = lock.bytes(name);
        let of_vhost = self.vhosts.entry(vhost_key).or_default();
        of_vhost.bytes += bytes;
        of_vhost.locks.insert(name_key, lock);
        self.bytes += bytes;
        self.count += 1;
    }
}

impl Lock {
    fn encode(&self, out: &mut Vec<u8>) {
        put_bool(out, self.held.is_some());
        if let Some(Held { owner, token, until_ms, lease_ms }) = &self.held {
            put_text(out, owner);
            [token, until_ms, lease_ms].into_iter().for_each(|number| put_u64(out, *number));
        }
        put_bool(out, self.value.is_some());
        if let Some(Written { version, by, bytes }) = &self.value {
            put_u64(out, *version);
            out.extend_from_slice(&by.to_le_bytes());
            put_blob(out, bytes);
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
        let held = match reader.bool()? {
            false => None,
            true => Some(Held {
                owner: reader.text()?.into(),
                token: reader.u64()?,
                until_ms: reader.u64()?,
                lease_ms: reader.u64()?,
            }),
        };
        let value = match reader.bool()? {
            false => None,
            true => Some(Written {
                version: reader.u64()?,
                by: reader.u128()?,
                bytes: reader.blob()?.into(),
            }),
        };
        Ok(Self { held, value })
    }
}
