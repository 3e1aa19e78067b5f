//! Names that a client may give to a queue or an exchange.

use machine::limits::NAME_BYTES_MAX;
use machine::{Kind, Refusal};

use super::error::DeclareError;

pub(super) fn check_possible(kind: Kind, name: &str) -> Result<(), Refusal> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains('\0') {
        return Err(Refusal::InvalidName { kind, name: name.to_owned() });
    }
    Ok(())
}

/// The prefix is the broker's own.
pub(super) fn check_not_reserved(kind: Kind, name: &str) -> Result<(), DeclareError> {
    if name.starts_with("amq.") {
        return Err(DeclareError::Reserved { kind, name: name.to_owned() });
    }
    Ok(())
}
