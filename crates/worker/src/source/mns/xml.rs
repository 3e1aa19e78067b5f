//! The bodies of calls and answers.

use serde::{Deserialize, Serialize};

/// The namespace of everything that is sent.
const NAMESPACE: &str = "http://mns.aliyuncs.com/doc/v1/";

/// A message as it is received.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", rename = "Message")]
pub struct Received {
    pub message_id: String,
    pub receipt_handle: String,
    pub message_body: String,
    /// Milliseconds since 1970, by the clock of MNS.
    pub enqueue_time: u64,
    pub next_visible_time: u64,
    pub dequeue_count: u32,
    #[serde(default)]
    pub priority: u32,
}

#[derive(Debug, Deserialize)]
struct Messages {
    #[serde(rename = "Message", default)]
    messages: Vec<Received>,
}

/// A message to send.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", rename = "Message")]
pub struct ToSend {
    #[serde(rename = "@xmlns", default, skip_deserializing)]
    pub namespace: &'static str,
    pub message_body: String,
    #[serde(default)]
    pub delay_seconds: u64,
    /// 1 to 16: 1 is first.
    #[serde(default)]
    pub priority: u32,
}

/// The handles of a batch to delete.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename = "ReceiptHandles")]
pub struct Handles {
    #[serde(rename = "@xmlns", default, skip_deserializing)]
    pub namespace: &'static str,
    #[serde(rename = "ReceiptHandle", default)]
    pub handles: Vec<String>,
}

/// A new handle, after the visibility was changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", rename = "ChangeVisibility")]
pub struct Moved {
    pub receipt_handle: String,
    pub next_visible_time: u64,
}

/// A refusal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", rename = "Error")]
pub struct Problem {
    #[serde(default)]
    pub code: String,
    #[serde(default)]
    pub message: String,
}

/// A refusal of one handle of a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", rename = "Error")]
pub struct BatchProblem {
    pub error_code: String,
    #[serde(default)]
    pub error_message: String,
    pub receipt_handle: String,
}

#[derive(Debug, Deserialize)]
struct BatchProblems {
    #[serde(rename = "Error", default)]
    problems: Vec<BatchProblem>,
}

#[derive(Debug, Deserialize)]
struct QueueMeta {
    #[serde(rename = "VisibilityTimeout")]
    visibility_timeout: u64,
}

/// Messages of an answer.
///
/// # Errors
/// It is another XML, or none.
pub fn read_received(body: &[u8]) -> Result<Vec<Received>, String> {
    Ok(read::<Messages>(body)?.messages)
}

/// A new handle.
///
/// # Errors
/// It is another XML, or none.
pub fn read_moved(body: &[u8]) -> Result<Moved, String> {
    read(body)
}

/// A queue's own visibility timeout, in seconds.
///
/// # Errors
/// It is another XML, or none.
pub fn read_queue_visibility(body: &[u8]) -> Result<u64, String> {
    Ok(read::<QueueMeta>(body)?.visibility_timeout)
}

/// A refusal. What is none has an empty code.
pub fn read_problem(body: &[u8]) -> Problem {
    read(body).unwrap_or_default()
}

/// The refusals of a batch, where the answer has any.
pub fn read_batch_problems(body: &[u8]) -> Option<Vec<BatchProblem>> {
    let text = std::str::from_utf8(body).ok()?;
    let problems = read::<BatchProblems>(text.as_bytes()).ok()?.problems;
    (!problems.is_empty()).then_some(problems)
}

/// The body of a batch of deletes.
pub fn write_handles(handles: Vec<String>) -> String {
    write(&Handles { namespace: NAMESPACE, handles })
}

/// The body of a send.
pub fn write_message(message: &ToSend) -> String {
    write(&ToSend { namespace: NAMESPACE, ..message.clone() })
}

fn read<T: serde::de::DeserializeOwned>(body: &[u8]) -> Result<T, String> {
    let text = std::str::from_utf8(body).map_err(|error| error.to_string())?;
    quick_xml::de::from_str(text).map_err(|error| error.to_string())
}

fn write<T: Serialize>(value: &T) -> String {
    let text = quick_xml::se::to_string(value).expect("texts and numbers can be written as XML");
    format!("<?xml version=\"1.0\" encoding=\"utf-8\"?>{text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_the_service_writes_them() {
        let body = br#"<?xml version="1.0" encoding="UTF-8" ?>
<Messages xmlns="http://mns.aliyuncs.com/doc/v1/">
  <Message>
    <MessageId>5F290C926D472878-2-14D9529A8FA-200000001</MessageId>
    <ReceiptHandle>1-ODU4OTkzNDU5My0xNDMyNzI3ODI3LTItOA==</ReceiptHandle>
    <MessageBodyMD5>C5DD56A39F5F7BB8B3337C6D11B6D8C7</MessageBodyMD5>
    <MessageBody>a &lt;b&gt; &amp;</MessageBody>
    <EnqueueTime>1250700979248</EnqueueTime>
    <NextVisibleTime>1250700799348</NextVisibleTime>
    <FirstDequeueTime>1250700779318</FirstDequeueTime>
    <DequeueCount>1</DequeueCount>
    <Priority>8</Priority>
  </Message>
</Messages>"#;
        let messages = read_received(body).expect("it is right");
        assert_eq!(messages.len(), 1);
        assert_eq!(messages[0].message_body, "a <b> &");
        assert_eq!((messages[0].dequeue_count, messages[0].priority), (1, 8));
        assert_eq!(messages[0].next_visible_time, 1_250_700_799_348);
    }

    #[test]
    fn refusals_are_read_one_and_many() {
        let one = b"<?xml version=\"1.0\"?><Error xmlns=\"http://mns.aliyuncs.com/doc/v1/\"><Code>QueueNotExist</Code>\
            <Message>The queue name you provided is not exist.</Message><RequestId>1</RequestId>\
            <HostId>http://x</HostId></Error>";
        assert_eq!(read_problem(one).code, "QueueNotExist");
        assert_eq!(read_batch_problems(one), None);
        let many = b"<Errors xmlns=\"http://mns.aliyuncs.com/doc/v1/\"><Error><ErrorCode>MessageNotExist</ErrorCode>\
            <ErrorMessage>gone</ErrorMessage><ReceiptHandle>h1</ReceiptHandle></Error></Errors>";
        let problems = read_batch_problems(many).expect("there is one");
        assert_eq!(
            (problems[0].error_code.as_str(), problems[0].receipt_handle.as_str()),
            ("MessageNotExist", "h1")
        );
        assert_eq!(read_problem(b"<html>bad gateway"), Problem::default());
    }

    #[test]
    fn bodies_are_written_with_their_namespace_and_escaped() {
        let text = write_handles(vec!["a&b".into(), "c".into()]);
        assert!(
            text.contains("<ReceiptHandles xmlns=\"http://mns.aliyuncs.com/doc/v1/\">"),
            "{text}"
        );
        assert!(text.contains("<ReceiptHandle>a&amp;b</ReceiptHandle>"), "{text}");
        let message = ToSend {
            message_body: "<x>".into(),
            delay_seconds: 5,
            priority: 8,
            ..ToSend::default()
        };
        let text = write_message(&message);
        assert!(
            text.contains("<MessageBody>&lt;x&gt;</MessageBody><DelaySeconds>5</DelaySeconds>"),
            "{text}"
        );
    }
}
