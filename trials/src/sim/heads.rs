//! What is stored of a message besides its body, of which simulated clients fill in the id alone.

use amqp::Properties;
use broker::stored;
use bytes::BytesMut;

/// What a session stores of a message that is published to a queue by its name, besides its body.
pub(super) fn head_of(queue: &str, id: &str) -> BytesMut {
    let mut head = BytesMut::new();
    let properties = Properties { message_id: Some(id), ..Properties::default() };
    stored::write_head("", queue, &properties, &mut head);
    head
}

/// The message-id in what is stored of a message.
pub(super) fn id_of(head: &[u8]) -> String {
    let properties = stored::split_head(head).map(|(_, raw)| Properties::decode(raw));
    let id = properties.and_then(|found| found.ok()?.message_id.map(str::to_owned));
    // The checker knows no such message.
    id.unwrap_or_else(|| format!("no head: {head:?}"))
}
