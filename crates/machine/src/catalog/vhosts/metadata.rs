//! What operators say of a vhost, apart from what is in it.

use crate::catalog::encoding::read_texts;
use crate::catalog::queues::QueueType;
use crate::encoding::{Corrupt, Reader, put_text, put_u32};

/// Of a vhost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VhostMetadata {
    pub description: String,
    pub tags: Vec<String>,
    /// Of queues that are declared without a type.
    pub default_queue_type: Option<QueueType>,
    /// Whether nodes publish what passes through it at the exchange of traces.
    pub is_traced: bool,
}

/// Stands beside a queue type's number in its byte: the vhost is traced.
const TRACED: u8 = 0x80;

impl VhostMetadata {
    pub(in crate::catalog) fn encode(&self, out: &mut Vec<u8>) {
        let Self { description, tags, default_queue_type, is_traced } = self;
        put_text(out, description);
        put_u32(out, tags.len() as u32);
        for tag in tags {
            put_text(out, tag);
        }
        let traced = if *is_traced { TRACED } else { 0 };
        out.push(default_queue_type.map_or(0, QueueType::number) | traced);
    }

    pub(in crate::catalog) fn read(reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
        let (description, tags) = (reader.string()?, read_texts(reader)?);
        let byte = reader.u8()?;
        let is_traced = byte & TRACED != 0;
        let default_queue_type = match byte & !TRACED {
            0 => None,
            number => {
                const OTHER: Corrupt = Corrupt::newer("a vhost of another version");
                Some(QueueType::from_number(number).ok_or(OTHER)?)
            }
        };
        Ok(Self { description, tags, default_queue_type, is_traced })
    }
}
