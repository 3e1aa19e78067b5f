//! Which message goes to which consumer.

pub(crate) mod dispatch;
