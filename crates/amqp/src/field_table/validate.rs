//! One pass over a table's bytes before anything is made of them: lengths, types, depth and count. Work is
//! proportional to the bytes, memory is fixed.

use super::tag;
use crate::error::Fault;
use crate::limits::{TABLE_BYTES_MAX, TABLE_DEPTH_MAX, TABLE_ENTRIES_MAX};
use crate::reader::Reader;

/// Where the walk is: which containers are open, and where each ends. An end is told as the number of bytes that
/// are still unread when it is reached.
struct Open {
    /// Ends of the containers around the innermost one, outermost first.
    ends: [u32; TABLE_DEPTH_MAX],
    /// Bit `n` says that the container `n` levels in is a table; otherwise it is an array.
    tables: u32,
    depth: usize,
    end: usize,
}

impl Open {
    fn is_table(&self) -> bool {
        self.tables
            .checked_shr(u32::try_from(self.depth).unwrap_or(u32::MAX)) // A bit per level.
            .is_some_and(|bits| bits & 1 == 1)
    }

    fn enter(&mut self, is_table: bool, unread: usize, bytes: usize) -> Result<(), Fault> {
        let end = unread.checked_sub(bytes).filter(|&end| end >= self.end);
        let end = end.ok_or(Fault::CrossesParent)?;
        let depth = self.depth.saturating_add(1);
        if depth >= TABLE_DEPTH_MAX {
            return Err(Fault::TableTooDeep);
        }
        let place = self.ends.get_mut(self.depth).ok_or(Fault::TableTooDeep)?;
        *place = u32::try_from(self.end).map_err(|_| Fault::TableTooLong)?;
        let bit = 1u32.checked_shl(u32::try_from(depth).unwrap_or(0)).unwrap_or(0);
        self.tables = if is_table { self.tables | bit } else { self.tables & !bit };
        self.depth = depth;
        self.end = end;
        Ok(())
    }

    /// Closes the innermost container; false if it was the outermost.
    fn leave(&mut self) -> bool {
        let Some(depth) = self.depth.checked_sub(1) else { return false };
        let end = self.ends.get(depth).copied().unwrap_or(0);
        self.depth = depth;
        self.end = usize::try_from(end).unwrap_or(0);
        true
    }
}

/// Checks the bytes of a table without its length, and counts its fields, top level only.
pub(super) fn validate(raw: &[u8]) -> Result<usize, Fault> {
    if raw.len() > TABLE_BYTES_MAX {
        return Err(Fault::TableTooLong);
    }
    let mut reader = Reader::new(raw);
    let mut open = Open { ends: [0; TABLE_DEPTH_MAX], tables: 1, depth: 0, end: 0 };
    let mut entries: usize = 0;
    let mut fields: usize = 0;
    loop {
        while reader.remaining() == open.end {
            if !open.leave() {
                return Ok(fields);
            }
        }
        entries = entries.saturating_add(1);
        if entries > TABLE_ENTRIES_MAX {
            return Err(Fault::TooManyEntries);
        }
        if open.depth == 0 {
            fields = fields.saturating_add(1);
        }
        if open.is_table() {
            reader.shortstr()?;
        }
        pass_value(&mut reader, &mut open)?;
        if reader.remaining() < open.end {
            return Err(Fault::CrossesParent);
        }
    }
}

/// Moves over a plain value, or into a container.
fn pass_value(reader: &mut Reader<'_>, open: &mut Open) -> Result<(), Fault> {
    let bytes = match reader.u8()? {
        tag::VOID => 0,
        tag::BOOL | tag::I8 | tag::U8 => 1,
        tag::I16 | tag::U16 => 2,
        tag::I32 | tag::U32 | tag::F32 => 4,
        tag::DECIMAL => 5,
        tag::I64 | tag::I64_TOO | tag::F64 | tag::TIMESTAMP => 8,
        tag::LONGSTR | tag::BYTES => reader.length()?,
        tag::TABLE => {
            let bytes = reader.length()?;
            return open.enter(true, reader.remaining(), bytes);
        }
        tag::ARRAY => {
            let bytes = reader.length()?;
            return open.enter(false, reader.remaining(), bytes);
        }
        unknown => return Err(Fault::UnknownType(unknown)),
    };
    reader.take(bytes)?;
    Ok(())
}
