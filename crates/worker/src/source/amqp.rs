//! AMQP 0-9-1: Millrace and RabbitMQ.

pub mod envelope;
