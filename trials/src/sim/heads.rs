//! What is stored of a message besides its body, of which simulated clients fill in the id alone.

use amqp::Properties;
use broker::dead_letter::Story;
use broker::stored;
use bytes::BytesMut;
use machine::QueueId;

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

/// A copy of a message that came to a queue because somebody sent it on so often.
pub(super) fn copy_of(id: &str, retries: u32, queue: QueueId) -> String {
    format!("{id} sent on {retries} times to queue {}", queue.base().0)
}

/// How often somebody has sent a message on.
pub(super) fn retries_of(head: &[u8]) -> u32 {
    Story::of(head, "").retries
}
