//! What a queue needs at the target, and how messages are addressed there.
//!
//! An exchange of its own, a fanout with that one queue, takes the messages: so they keep their routing keys, and
//! a header CC does not send them to other queues once more. Without it (`--default-exchange`) a message is addressed to
//! the queue by its name, which becomes its routing key.

use amqp::{FieldTable, FieldValue, Properties, TableRef};
use client::limits::SHORT_STRING_BYTES_MAX;
use client::{Address, Connection, Delivery, Error, ExchangeSpec, PublishSeq, Publisher, Url};

use super::flight::Entry;

/// The header of a message that may be at the target twice.
pub(super) const REPEAT: &str = "x-millrace-repeat";

const EXCHANGE_PREFIX: &str = "millrace.move.";

/// Where the messages of one queue go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cmd) struct Place {
    queue: String,
    /// None: the default exchange.
    exchange: Option<String>,
    /// Of the exchange's binding: two who move to one queue do not take it from each other.
    key: String,
}

impl Place {
    pub(in crate::cmd) fn new(queue: &str, from: &Url, uses_default_exchange: bool) -> Self {
        let exchange = (!uses_default_exchange).then(|| cut(format!("{EXCHANGE_PREFIX}{queue}")));
        let key = cut(format!("{}:{}/{}/{queue}", from.host, from.port, from.vhost));
        Self { queue: queue.to_owned(), exchange, key }
    }

    /// Looks whether the queue is there, and makes the way to it.
    ///
    /// # Errors
    /// There is no such queue, or the target refuses.
    pub(in crate::cmd) async fn prepare(&self, target: &mut Connection) -> Result<(), Error> {
        target.look_up_queue(&self.queue).await?;
        let Some(name) = self.exchange.clone() else { return Ok(()) };
        let exchange = ExchangeSpec {
            name: name.clone(),
            kind: "fanout".into(),
            durable: true,
            auto_delete: true,
            internal: false,
            arguments: FieldTable::new(),
        };
        target.declare_exchange(&exchange).await?;
        target.bind_queue(&self.queue, &name, &self.key, &FieldTable::new()).await
    }

    /// Takes the way away. With its last binding the exchange goes by itself.
    ///
    /// # Errors
    /// The target refuses.
    pub(in crate::cmd) async fn remove(&self, target: &mut Connection) -> Result<(), Error> {
        match &self.exchange {
            Some(name) => {
                target.unbind_queue(&self.queue, name, &self.key, &FieldTable::new()).await
            }
            None => Ok(()),
        }
    }

    /// The exchange that takes the messages, if it is not the default one.
    pub(in crate::cmd) fn exchange(&self) -> Option<&str> {
        self.exchange.as_deref()
    }

    /// Publishes a message as it is, or with the mark of a repeat. None: the publisher has no room.
    ///
    /// # Errors
    /// The message cannot be carried; the publisher is over.
    pub(super) fn publish(
        &self,
        publisher: &mut Publisher,
        entry: &Entry<Delivery>,
    ) -> Result<Option<PublishSeq>, Error> {
        let delivery = &entry.message;
        let properties = delivery.properties()?;
        let to = match &self.exchange {
            Some(exchange) => {
                Address { exchange, routing_key: delivery.routing_key(), mandatory: true }
            }
            None if has_copies(&properties) => {
                let text = "a message has the header CC or BCC: published to the default exchange it would go to \
                            other queues once more. Run without --default-exchange";
                return Err(Error::Invalid { text: text.into() });
            }
            None => Address::queue(&self.queue),
        };
        if !entry.is_repeat {
            return publisher.try_publish(to, &properties, &delivery.body);
        }
        let headers = marked(&properties);
        let headers = Some(TableRef::validate(&headers)?);
        publisher.try_publish(to, &Properties { headers, ..properties }, &delivery.body)
    }
}

/// A name that is too long is cut, and told from others by a number made of the whole.
fn cut(name: String) -> String {
    if name.len() <= SHORT_STRING_BYTES_MAX {
        return name;
    }
    // FNV-1a: it is the same in every version of this program.
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let end = format!(".{hash:016x}");
    let mut bytes = SHORT_STRING_BYTES_MAX - end.len();
    while !name.is_char_boundary(bytes) {
        bytes -= 1;
    }
    format!("{}{end}", &name[..bytes])
}

fn has_copies(properties: &Properties<'_>) -> bool {
    let headers = properties.headers.unwrap_or_default();
    headers.iter().any(|(name, _)| matches!(name, "CC" | "BCC"))
}

/// The headers with the mark.
fn marked(properties: &Properties<'_>) -> bytes::BytesMut {
    let FieldTable(mut fields) = properties.headers.map(|it| it.to_table()).unwrap_or_default();
    fields.retain(|(name, _): &(String, FieldValue)| name != REPEAT);
    fields.push((REPEAT.to_owned(), FieldValue::Bool(true)));
    FieldTable(fields).to_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_stands_beside_the_headers_that_are_there_and_once() {
        let mut headers = FieldTable::new();
        headers.insert("a", FieldValue::I32(1)).insert("CC", FieldValue::Array(Vec::new()));
        let raw = headers.to_bytes();
        let headers = Some(TableRef::validate(&raw).unwrap());
        let properties = Properties { headers, ..Properties::default() };
        assert!(has_copies(&properties));
        let once = marked(&properties);
        let headers = TableRef::validate(&once).unwrap();
        let twice = marked(&Properties { headers: Some(headers), ..properties });
        assert_eq!(once, twice);
        let table = headers.to_table();
        assert_eq!(table.find("a"), Some(&FieldValue::I32(1)));
        assert_eq!(table.find(REPEAT), Some(&FieldValue::Bool(true)));
        assert!(!has_copies(&Properties::default()));
    }

    #[test]
    fn names_that_are_too_long_are_cut_and_stay_different() {
        let from: Url = "amqp://host/shop".parse().unwrap();
        let long = "ä".repeat(127);
        let [one, other] = ["a", "b"].map(|end| Place::new(&format!("{long}{end}"), &from, false));
        for place in [&one, &other] {
            assert!(place.exchange.as_ref().unwrap().len() <= SHORT_STRING_BYTES_MAX);
            assert!(place.key.len() <= SHORT_STRING_BYTES_MAX);
        }
        assert_ne!(one.exchange, other.exchange);
        assert_eq!(Place::new("q", &from, false).exchange.as_deref(), Some("millrace.move.q"));
        assert_eq!(Place::new("q", &from, true).exchange, None);
        assert_eq!(Place::new("q", &from, true).key, "host:5672/shop/q");
    }
}
