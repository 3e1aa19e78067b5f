//! Which message goes to which consumer.

pub(crate) mod bucket;
pub(crate) mod budget;
pub(crate) mod dispatch;
pub(crate) mod loan;
pub(crate) mod times;
