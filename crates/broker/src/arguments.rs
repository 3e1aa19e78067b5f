//! RabbitMQ's rules about the arguments of queues, exchanges and bindings: so far, what a client is told of those
//! that are wrong.

pub(crate) mod words;
