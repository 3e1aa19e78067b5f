//! Field tables in RabbitMQ's dialect: `TableRef` is a view of received bytes, `FieldTable` is owned.
//!
//! The view keeps the bytes, so what passes through is exact to the bit. The dialect differs from AMQP 0-9-1
//! 4.2.5.5: `s` is a signed 16-bit number, `u`, `i` and `B` are unsigned, `l` and `L` are both a signed 64-bit
//! number (`l` is written), `x` is bytes. Order and duplicate keys are kept. Nothing here recurses over input.

mod fields;
mod owned;
mod validate;
mod view;

pub use fields::{ElementWriter, FieldWriter};
pub use owned::{FieldTable, FieldValue};
pub(crate) use view::put_table;
pub use view::{ArrayRef, Entries, TableRef, ValueRef, Values, Widened};

/// The octet before each value that says what it is.
mod tag {
    pub(super) const BOOL: u8 = b't';
    pub(super) const I8: u8 = b'b';
    pub(super) const U8: u8 = b'B';
    pub(super) const I16: u8 = b's';
    pub(super) const U16: u8 = b'u';
    pub(super) const I32: u8 = b'I';
    pub(super) const U32: u8 = b'i';
    pub(super) const I64: u8 = b'l';
    /// Read like `I64`, never written.
    pub(super) const I64_TOO: u8 = b'L';
    pub(super) const F32: u8 = b'f';
    pub(super) const F64: u8 = b'd';
    pub(super) const DECIMAL: u8 = b'D';
    pub(super) const LONGSTR: u8 = b'S';
    pub(super) const BYTES: u8 = b'x';
    pub(super) const ARRAY: u8 = b'A';
    pub(super) const TIMESTAMP: u8 = b'T';
    pub(super) const TABLE: u8 = b'F';
    pub(super) const VOID: u8 = b'V';
}

#[cfg(test)]
mod tests;
