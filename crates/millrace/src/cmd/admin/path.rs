//! Paths and queries of requests.

use std::fmt::Write as _;

/// A path below `/api`, and its query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Path(String);

impl Path {
    /// The words of a path, each as it is: a vhost `/` becomes `%2F`.
    pub(crate) fn of(words: &[&str]) -> Self {
        let mut path = "/api".to_owned();
        for word in words {
            path.push('/');
            path.push_str(&quoted(word));
        }
        Self(path)
    }

    /// The same with a query's field behind it.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.0.push(if self.0.contains('?') { '&' } else { '?' });
        let _ = write!(self.0, "{}={}", quoted(name), quoted(value));
        self
    }

    pub(crate) fn text(&self) -> &str {
        &self.0
    }
}

/// Percent-encoded: all but what RFC 3986 calls unreserved.
pub(crate) fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                quoted.push(char::from(byte));
            }
            other => {
                // Writing to a String cannot fail.
                let _ = write!(quoted, "%{other:02X}");
            }
        }
    }
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stay_what_they_are() {
        let path = Path::of(&["queues", "/", "a b/ü"]).with("name", "x&y").with("page", "1");
        assert_eq!(path.text(), "/api/queues/%2F/a%20b%2F%C3%BC?name=x%26y&page=1");
    }
}
