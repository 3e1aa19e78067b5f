//! Bytes to AMQP 0-9-1 values and back; every rule that needs no broker.
//!
//! Decoding copies nothing: a `Frame`, a `Method`, a `TableRef` are views of the read buffer, and a publish or an
//! ack is decoded without an allocation. Every length is judged before it is waited for or believed (`limits`).
//! Bad bytes give an `Error` with the reply code to close with; no bytes make this crate panic.
//!
//! Left to others: sockets and time, which frame may follow which, what a method does, and who may ask for it.
//!
//! ```
//! use amqp::{Decoder, Encoder, Frame, Method, Properties, basic, limits};
//! use bytes::BytesMut;
//!
//! let mut wire = BytesMut::new();
//! let mut properties = BytesMut::new();
//! Properties { delivery_mode: Some(2), ..Properties::default() }.encode(&mut properties);
//! let publish = basic::Publish { routing_key: "orders", ..basic::Publish::default() };
//!
//! let mut encoder = Encoder::new(&mut wire, limits::FRAME_BYTES_DEFAULT);
//! encoder.method(1, &Method::BasicPublish(publish));
//! encoder.header(1, 5, &properties);
//! encoder.body(1, b"hello");
//!
//! let decoder = Decoder::new(limits::FRAME_BYTES_DEFAULT);
//! let Some((Frame::Method { channel: 1, payload }, taken)) = decoder.decode(&wire)? else {
//!     panic!("the first frame is a method");
//! };
//! assert_eq!(Method::decode(payload)?, Method::BasicPublish(publish));
//!
//! let Some((Frame::Header { body_bytes, properties, .. }, _)) = decoder.decode(&wire[taken..])?
//! else {
//!     panic!("the second is a content header");
//! };
//! assert_eq!(body_bytes, 5);
//! assert_eq!(Properties::decode(properties)?.delivery_mode, Some(2));
//! # Ok::<(), amqp::Error>(())
//! ```

#![cfg_attr(
    not(test),
    deny(clippy::as_conversions, clippy::indexing_slicing, clippy::arithmetic_side_effects)
)]

mod content;
mod decoder;
mod encoder;
mod error;
mod field_table;
mod frame;
pub mod limits;
mod method;
mod properties;
mod reader;
mod reply_code;
mod shortstr;
mod writer;

pub use content::BodyCount;
pub use decoder::Decoder;
pub use encoder::{Encoder, encode_deliver, encode_publish};
pub use error::Error;
pub use field_table::{
    ArrayRef, ElementWriter, Entries, FieldTable, FieldValue, FieldWriter, TableRef, ValueRef,
    Values, Widened,
};
pub use frame::{CLASS_BASIC, Frame, PROTOCOL_HEADER};
pub use method::{Method, basic, channel, confirm, connection, exchange, queue, tx};
pub use properties::Properties;
pub use reply_code::ReplyCode;
