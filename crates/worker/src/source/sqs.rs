//! Amazon SQS: its JSON protocol (`AmazonSQS.*`, `application/x-amz-json-1.0`), and what its errors mean.

mod message;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use message::{read, write};

/// Messages of one call.
pub const BATCH_MAX: usize = 10;
/// Attributes of one message.
pub const ATTRIBUTES_MAX: usize = 10;
/// Longest delay of a message that is sent, in seconds.
pub const DELAY_MAX_SECONDS: u64 = 900;

/// A message's own attributes, by name.
pub type Attributes = BTreeMap<String, Attribute>;

/// One of a message's own attributes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Attribute {
    pub data_type: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub string_value: Option<String>,
}

/// A message as it is received.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Received {
    pub message_id: String,
    pub receipt_handle: String,
    #[serde(default)]
    pub body: String,
    /// Those that SQS gives: `ApproximateReceiveCount`, `SentTimestamp`, `MessageGroupId`.
    #[serde(default)]
    pub attributes: BTreeMap<String, String>,
    #[serde(default)]
    pub message_attributes: Attributes,
}

/// Answer to ReceiveMessage.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Messages {
    #[serde(default)]
    pub messages: Vec<Received>,
}

/// ReceiveMessage.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Receive<'a> {
    pub queue_url: &'a str,
    pub max_number_of_messages: usize,
    pub wait_time_seconds: u64,
    pub visibility_timeout: u64,
    pub attribute_names: [&'a str; 1],
    pub message_attribute_names: [&'a str; 1],
}

/// GetQueueAttributes.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Describe<'a> {
    pub queue_url: &'a str,
    pub attribute_names: [&'a str; 1],
}

/// DeleteMessageBatch or ChangeMessageVisibilityBatch.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Change<'a> {
    pub queue_url: &'a str,
    pub entries: Vec<ChangeEntry>,
}

/// One message of a [`Change`].
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct ChangeEntry {
    pub id: String,
    pub receipt_handle: String,
    /// Seconds; none: it is deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub visibility_timeout: Option<u64>,
}

/// Answer to a [`Change`].
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Changed {
    #[serde(default)]
    pub failed: Vec<Failed>,
}

/// A message of a batch that was refused.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Failed {
    pub id: String,
    pub code: String,
    #[serde(default)]
    pub message: String,
}

/// SendMessage.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Send<'a> {
    pub queue_url: &'a str,
    pub message_body: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_seconds: Option<u64>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub message_attributes: Attributes,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_group_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_deduplication_id: Option<String>,
}

/// A refusal.
#[derive(Debug, Default, Deserialize)]
pub struct Problem {
    #[serde(rename = "__type", default)]
    code: String,
    #[serde(default)]
    message: String,
    /// Some servers write it in capitals, some write both.
    #[serde(rename = "Message", default)]
    message_in_capitals: String,
}

impl Problem {
    /// The error's name, without its namespace.
    pub fn code(&self) -> &str {
        self.code.rsplit('#').next().unwrap_or_default()
    }

    /// What it says.
    pub fn message(&self) -> &str {
        if self.message.is_empty() { &self.message_in_capitals } else { &self.message }
    }
}

/// What a refusal means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// The receipt handle is not valid any more: somebody else may have the message.
    HandleOver,
    /// It passes: too many calls, or a failure of theirs.
    Passes,
    /// Nothing works until somebody mends it.
    Setup { what_to_do: &'static str },
}

/// What an error means.
pub fn meaning(status: u16, code: &str, message: &str) -> Meaning {
    let setup = |what_to_do| Meaning::Setup { what_to_do };
    let is_about_time =
        message.contains("Signature expired") || message.contains("not yet current");
    match code {
        "ReceiptHandleIsInvalid" | "MessageNotInflight" => Meaning::HandleOver,
        "InvalidParameterValue" if message.contains("receipt handle has expired") => {
            Meaning::HandleOver
        }
        "QueueDoesNotExist" | "AWS.SimpleQueueService.NonExistentQueue" | "InvalidAddress" => {
            setup("create the queue, or correct `queue_url`, `dead_queue_url` and `region`")
        }
        "RequestTimeTooSkewed" => setup("this machine's clock is off: set it"),
        "InvalidSignatureException" | "SignatureDoesNotMatch" | "RequestExpired"
            if is_about_time || code == "RequestExpired" =>
        {
            setup("this machine's clock is off: set it")
        }
        "InvalidSignatureException" | "SignatureDoesNotMatch" | "IncompleteSignature" => {
            setup("correct `secret_access_key` and `region`")
        }
        "InvalidClientTokenId" | "UnrecognizedClientException" | "MissingAuthenticationToken" => {
            setup("correct `access_key_id`")
        }
        "ExpiredToken" | "ExpiredTokenException" => setup("renew `session_token`"),
        "AccessDenied" | "AccessDeniedException" | "OptInRequired" => {
            setup("give this access key the right to receive, delete, send and change visibility")
        }
        _ if status >= 500 || status == 429 => Meaning::Passes,
        _ if status == 401 || status == 403 => setup("look at the access key and its rights"),
        _ => Meaning::Passes,
    }
}

/// The URL of a queue that a publish names: a URL itself, or the name of one beside `own`.
pub fn url_of(own: &str, queue: &str) -> String {
    if queue.starts_with("http://") || queue.starts_with("https://") {
        return queue.to_owned();
    }
    let folder = own.rsplit_once('/').map_or("", |(folder, _)| folder);
    format!("{folder}/{queue}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_the_error_table_has_its_meaning() {
        assert_eq!(meaning(400, "ReceiptHandleIsInvalid", ""), Meaning::HandleOver);
        assert_eq!(meaning(400, "MessageNotInflight", ""), Meaning::HandleOver);
        let expired = "Value x for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired.";
        assert_eq!(meaning(400, "InvalidParameterValue", expired), Meaning::HandleOver);
        for (status, code) in [
            (400, "RequestThrottled"),
            (503, "ServiceUnavailable"),
            (500, "InternalFailure"),
            (400, "OverLimit"),
        ] {
            assert_eq!(meaning(status, code, ""), Meaning::Passes, "{code}");
        }
        let wrong = [
            ("QueueDoesNotExist", "", "create"),
            ("InvalidSignatureException", "Signature expired: 1", "clock"),
            ("InvalidSignatureException", "does not match", "secret"),
            ("InvalidClientTokenId", "", "access_key_id"),
            ("ExpiredToken", "", "session_token"),
            ("AccessDeniedException", "", "right"),
        ];
        for (code, message, word) in wrong {
            let Meaning::Setup { what_to_do } = meaning(400, code, message) else {
                panic!("{code}")
            };
            assert!(what_to_do.contains(word), "{code}: {what_to_do}");
        }
    }

    #[test]
    fn refusals_are_read_as_the_service_writes_them() {
        let body = r#"{"__type":"com.amazonaws.sqs#QueueDoesNotExist","message":"The specified queue does not exist."}"#;
        let problem: Problem = serde_json::from_str(body).expect("it is one");
        assert_eq!(problem.code(), "QueueDoesNotExist");
        let both = r#"{"__type":"x#OverLimit","message":"a","Message":"a"}"#;
        let problem: Problem = serde_json::from_str(both).expect("it is one");
        assert_eq!((problem.code(), problem.message()), ("OverLimit", "a"));
        let body = r#"{"Successful":[{"Id":"0"}],"Failed":[{"Id":"1","Code":"ReceiptHandleIsInvalid","SenderFault":true}]}"#;
        let changed: Changed = serde_json::from_str(body).expect("it is an answer");
        assert_eq!((changed.failed[0].id.as_str(), changed.failed.len()), ("1", 1));
    }

    #[test]
    fn a_queue_beside_ours_needs_only_its_name() {
        assert_eq!(url_of("https://h/1/jobs", "other"), "https://h/1/other");
        assert_eq!(url_of("https://h/1/jobs", "http://x/2/q"), "http://x/2/q");
    }
}
