//! Who reads what a level has: what of it is ready, out, settled or dead.

pub(crate) mod delayed;
pub(crate) mod delivered;
pub(crate) mod gathered;
pub(crate) mod leaving;
pub(crate) mod reading;
pub(crate) mod ready;
pub(crate) mod values;
