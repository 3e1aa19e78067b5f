//! AMQP 0-9-1: Millrace and RabbitMQ. What a delivery means, what settling it takes, and what is on its way.

pub mod envelope;
pub mod letters;
pub mod plan;
pub mod settings;

pub use settings::{QueueType, Settings};

/// Whose broker it is, as far as this makes a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broker {
    /// It delays messages itself (`x-delay`).
    Millrace,
    /// Delays go through queues whose messages expire.
    Other,
}

impl Broker {
    /// Told by the server's properties: Millrace calls its product RabbitMQ, and itself by its name in `platform`.
    pub fn of(server: &amqp::FieldTable) -> Self {
        let platform = match server.find("platform") {
            Some(amqp::FieldValue::LongStr(text)) => text.as_slice(),
            _ => &[],
        };
        if platform.starts_with(b"Millrace") { Self::Millrace } else { Self::Other }
    }
}
