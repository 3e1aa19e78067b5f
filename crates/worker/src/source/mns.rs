//! Aliyun MNS: signatures, XML, and what its errors mean. `x-mns-version: 2015-06-06`.

mod sign;
mod xml;

pub use sign::{SignedHeaders, Signer};
pub use xml::{
    BatchProblem, Handles, Moved, Problem, Received, ToSend, read_batch_problems, read_moved,
    read_problem, read_queue_visibility, read_received, write_handles, write_message,
};

/// The version of the protocol, `x-mns-version`.
pub const VERSION: &str = "2015-06-06";
/// The type of every body.
pub const CONTENT_TYPE: &str = "text/xml;charset=utf-8";
/// Messages of one call.
pub const BATCH_MAX: usize = 16;
/// Largest message, in bytes of what is sent.
pub const MESSAGE_BYTES_MAX: usize = 65_536;

/// What a refusal means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// No message is there, or it is not ours any more.
    NoMessage,
    /// The receipt handle is not valid any more.
    HandleOver,
    /// It passes: too many calls, or a failure of theirs.
    Passes,
    /// Nothing works until somebody mends it.
    Setup { what_to_do: &'static str },
}

/// What an error code means.
pub fn meaning(status: u16, code: &str) -> Meaning {
    let setup = |what_to_do| Meaning::Setup { what_to_do };
    match code {
        "MessageNotExist" => Meaning::NoMessage,
        "ReceiptHandleError" => Meaning::HandleOver,
        "QpsLimitExceeded" | "InternalError" | "InternalServerError" | "ServiceUnavailable" => {
            Meaning::Passes
        }
        "QueueNotExist" => {
            setup("create the queue, or correct `queue`, `dead_queue` and `endpoint`")
        }
        "TimeExpired" => setup("this machine's clock is more than 15 minutes off: set it"),
        "SignatureDoesNotMatch" => setup("correct `access_key_secret`"),
        "InvalidAccessKeyId" | "AccessIDAuthError" => setup("correct `access_key_id`"),
        "AccessDenied" => setup("give this access key the right to receive, delete and send"),
        "SecurityTokenExpired" | "InvalidSecurityToken" => setup("renew `security_token`"),
        "InvalidArgument" | "MalformedXML" | "InvalidQueueName" | "InvalidRequestURL" => {
            setup("correct the names and numbers of this source's settings")
        }
        _ if status >= 500 || status == 429 => Meaning::Passes,
        _ if status == 403 || status == 401 => setup("look at the access key and its rights"),
        _ => Meaning::Passes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_the_error_table_has_its_meaning() {
        assert_eq!(meaning(404, "MessageNotExist"), Meaning::NoMessage);
        assert_eq!(meaning(400, "ReceiptHandleError"), Meaning::HandleOver);
        for (status, code) in
            [(503, "QpsLimitExceeded"), (500, "InternalError"), (502, ""), (429, "x")]
        {
            assert_eq!(meaning(status, code), Meaning::Passes, "{code}");
        }
        let wrong = [
            (404, "QueueNotExist", "create"),
            (408, "TimeExpired", "clock"),
            (403, "SignatureDoesNotMatch", "secret"),
            (403, "AccessDenied", "right"),
            (403, "somethingNew", "rights"),
        ];
        for (status, code, word) in wrong {
            let Meaning::Setup { what_to_do } = meaning(status, code) else { panic!("{code}") };
            assert!(what_to_do.contains(word), "{code}: {what_to_do}");
        }
    }
}
