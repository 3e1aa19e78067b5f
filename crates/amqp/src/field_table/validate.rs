//! One pass over a table's bytes before anything is made of them: lengths, types, depth and count. Work is
//! proportional to the bytes; memory is fixed, but for tables that are nested unusually deep.

use super::tag;
use crate::error::Fault;
use crate::limits::{TABLE_BYTES_MAX, TABLE_DEPTH_MAX, TABLE_DEPTH_USUAL, TABLE_ENTRIES_MAX};
use crate::reader::Reader;

/// Where the walk is: in which container, where that ends, and what is around it. An end is told as the number of
/// bytes that are still unread when it is reached.
struct Open {
    end: usize,
    /// A table has keys, an array has none.
    is_table: bool,
    depth: usize,
    /// `end` and `is_table` of the containers around, outermost first.
    around: [(usize, bool); TABLE_DEPTH_USUAL],
    /// The same of those further in.
    deeper: Vec<(usize, bool)>,
}

impl Open {
    fn enter(&mut self, is_table: bool, unread: usize, bytes: usize) -> Result<(), Fault> {
        let end = unread.checked_sub(bytes).filter(|&end| end >= self.end);
        let end = end.ok_or(Fault::CrossesParent)?;
        if self.depth >= TABLE_DEPTH_MAX - 1 {
            return Err(Fault::TableTooDeep);
        }
        match self.around.get_mut(self.depth) {
            Some(place) => *place = (self.end, self.is_table),
            None => self.deeper.push((self.end, self.is_table)),
        }
        self.depth = self.depth.saturating_add(1);
        self.end = end;
        self.is_table = is_table;
        Ok(())
    }

    /// Closes the innermost container; false if it was the outermost.
    fn leave(&mut self) -> bool {
        let Some(depth) = self.depth.checked_sub(1) else { return false };
        let usual = self.around.get(depth).copied();
        let Some((end, is_table)) = usual.or_else(|| self.deeper.pop()) else { return false };
        self.depth = depth;
        self.end = end;
        self.is_table = is_table;
        true
    }
}

/// Checks the bytes of a table without its length.
pub(super) fn validate(raw: &[u8]) -> Result<(), Fault> {
    if raw.len() > TABLE_BYTES_MAX {
        return Err(Fault::TableTooLong);
    }
    let mut reader = Reader::new(raw);
    let around = [(0, false); TABLE_DEPTH_USUAL];
    let mut open = Open { end: 0, is_table: true, depth: 0, around, deeper: Vec::new() };
    let mut entries: usize = 0;
    loop {
        while reader.remaining() == open.end {
            if !open.leave() {
                return Ok(());
            }
        }
        entries = entries.saturating_add(1);
        if entries > TABLE_ENTRIES_MAX {
            return Err(Fault::TooManyEntries);
        }
        if open.is_table {
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
