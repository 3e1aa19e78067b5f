//! OpenTelemetry: spans, and how a collector gets them (OTLP over HTTP, in protobuf).
//!
//! [`Parent`] reads the trace context that a message carries, [`Span`] is what happened to the message, and `delivery`
//! decides what the collector's answer means for the spans that it was sent. The shell is in [`io`]: a bounded queue, and
//! one task that sends what is in it. What a span stands for is not known here.

mod delivery;
mod endpoint;
pub mod io;
pub mod limits;
mod parent;
mod span;
mod wire;

pub use endpoint::Endpoint;
pub use parent::Parent;
pub use span::{Kind, Span, Value};
