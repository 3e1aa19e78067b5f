//! Methods: the verbs of AMQP, one struct each, in a module per class. They are generated from
//! `spec/methods.toml` (`cargo xtask gen`); here is only what the generated code leans on.
//!
//! Reserved fields are read and dropped, and written as zero. Bits that no field has are ignored, as RabbitMQ does.

mod generated;

pub use generated::*;

use crate::error::{Error, Fault};
use crate::reader::Reader;
use crate::reply_code::ReplyCode;

impl Method<'_> {
    /// The class and method id that open a payload, whether or not we know them: what a refusal names.
    pub fn peek_ids(payload: &[u8]) -> Option<(u16, u16)> {
        let mut reader = Reader::new(payload);
        Some((reader.u16().ok()?, reader.u16().ok()?))
    }
}

/// Says which method a fault is in. Kept out of line: the common path has no faults.
#[cold]
fn refused(name: &str, fault: Fault) -> Error {
    fault.within(name)
}

#[cold]
fn unknown_class(class: u16, method: u16) -> Error {
    let text = format!("unknown class {class} (method {method})");
    Error::new(ReplyCode::CommandInvalid, text)
}

#[cold]
fn unknown_method(class: &str, method: u16) -> Error {
    Error::new(ReplyCode::NotImplemented, format!("class {class} has no method {method}"))
}
