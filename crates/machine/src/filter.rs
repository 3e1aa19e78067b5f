//! Which messages of a stream a subscription is given: those whose routing key matches one of its topic patterns, or
//! those that have one of some values in one header.
//!
//! A [`Filter`] is what the log keeps. Who has the bytes of messages asks a [`Matcher`], which is made of it once.

mod pattern;

use pattern::Pattern;

use crate::encoding::{Corrupt, Reader, put_text, put_u32};
use crate::head;
use crate::limits::{FILTER_BYTES_MAX, FILTER_WORDS_MAX};

/// What the log keeps of a subscription's filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Filter {
    /// Topic patterns, of which one is to match the routing key of the publish.
    Keys(Vec<String>),
    /// A header, and values of which it is to have one.
    Header { name: String, values: Vec<String> },
}

const KEYS: u8 = 1;
const HEADER: u8 = 2;

impl Filter {
    /// Patterns or values.
    fn words(&self) -> &[String] {
        match self {
            Self::Keys(words) | Self::Header { values: words, .. } => words,
        }
    }

    /// Whether it says something, and not too much.
    pub fn is_within_limits(&self) -> bool {
        let name = match self {
            Self::Keys(_) => 0,
            Self::Header { name, .. } => name.len(),
        };
        let bytes: usize = self.words().iter().map(String::len).sum();
        let count = self.words().len();
        (1..=FILTER_WORDS_MAX).contains(&count) && name + bytes <= FILTER_BYTES_MAX
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Keys(_) => out.push(KEYS),
            Self::Header { name, .. } => {
                out.push(HEADER);
                put_text(out, name);
            }
        }
        put_u32(out, self.words().len() as u32);
        self.words().iter().for_each(|word| put_text(out, word));
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
        let name = match reader.u8()? {
            KEYS => None,
            HEADER => Some(reader.string()?),
            _ => return Err(Corrupt::newer("a filter of another kind")),
        };
        let count = reader.u32()? as usize;
        if count > FILTER_WORDS_MAX {
            return Err(reader.corrupt());
        }
        let words = (0..count).map(|_| reader.string()).collect::<Result<Vec<_>, _>>()?;
        let filter = match name {
            None => Self::Keys(words),
            Some(name) => Self::Header { name, values: words },
        };
        if filter.is_within_limits() { Ok(filter) } else { Err(reader.corrupt()) }
    }
}

/// A filter, ready to be asked of many messages.
#[derive(Clone, Debug)]
pub struct Matcher {
    what: What,
    /// The routing key that was asked about last, and the answer: messages of one key often come together.
    last: Vec<u8>,
    matched: bool,
}

#[derive(Clone, Debug)]
enum What {
    Keys(Vec<Pattern>),
    Header { name: String, values: Vec<String> },
}

impl Matcher {
    pub fn new(filter: &Filter) -> Self {
        let what = match filter {
            Filter::Keys(keys) => What::Keys(keys.iter().map(|key| Pattern::new(key)).collect()),
            Filter::Header { name, values } => {
                What::Header { name: name.clone(), values: values.clone() }
            }
        };
        let mut matcher = Self { what, last: Vec::new(), matched: false };
        matcher.matched = matcher.matches_key(&[]);
        matcher
    }

    /// Whether the message with this head is wanted. One whose head cannot be read is: nothing is passed over that is
    /// not known to be unwanted.
    pub fn matches(&mut self, head: &[u8]) -> bool {
        match &self.what {
            What::Keys(_) => {
                let Some(key) = head::routing_key(head) else { return true };
                if self.last != key {
                    self.matched = self.matches_key(key);
                    self.last.clear();
                    self.last.extend_from_slice(key);
                }
                self.matched
            }
            What::Header { name, values } => match header(head, name) {
                Ok(found) => found.is_some_and(|found| values.iter().any(|it| found.is(it))),
                Err(head::Unreadable) => true,
            },
        }
    }

    fn matches_key(&self, key: &[u8]) -> bool {
        match &self.what {
            What::Keys(patterns) => patterns.iter().any(|pattern| pattern.matches(key)),
            What::Header { .. } => false,
        }
    }
}

fn header<'a>(head: &'a [u8], name: &str) -> Result<Option<head::Found<'a>>, head::Unreadable> {
    head::header(head::properties(head)?, name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(keys: &[&str]) -> Filter {
        Filter::Keys(keys.iter().map(|key| (*key).to_owned()).collect())
    }

    fn to(key: &str) -> Vec<u8> {
        let mut head = vec![2, b'e', b'x', key.len() as u8];
        head.extend_from_slice(key.as_bytes());
        head.extend_from_slice(&[0, 0]);
        head
    }

    #[test]
    fn a_message_is_wanted_that_one_of_the_patterns_matches() {
        let mut matcher = Matcher::new(&keys(&["orders.*.eu", "refunds.#"]));
        for key in ["orders.new.eu", "orders.new.us", "refunds", "refunds.a.b", "refund", ""] {
            let is_wanted = ["orders.new.eu", "refunds", "refunds.a.b"].contains(&key);
            assert_eq!(matcher.matches(&to(key)), is_wanted, "{key}");
            assert_eq!(matcher.matches(&to(key)), is_wanted, "{key}, asked again");
        }
        assert!(Matcher::new(&keys(&["#"])).matches(&to("")));
    }

    #[test]
    fn what_cannot_be_read_is_wanted() {
        let header = Filter::Header { name: "a".into(), values: vec!["b".into()] };
        for filter in [keys(&["a"]), header] {
            assert!(Matcher::new(&filter).matches(b"\x09x"), "{filter:?}");
        }
    }

    #[test]
    fn a_filter_is_read_as_it_was_written_and_only_within_its_limits() {
        let header = Filter::Header { name: "kind".into(), values: vec!["a".into(), "".into()] };
        for filter in [keys(&["a.#"]), keys(&["a"; FILTER_WORDS_MAX]), header] {
            let mut out = Vec::new();
            filter.encode(&mut out);
            let mut reader = Reader::new(&out, "a filter");
            assert_eq!(Filter::read(&mut reader), Ok(filter));
            assert!(reader.rest().is_empty());
        }
        let long = "x".repeat(FILTER_BYTES_MAX + 1);
        for filter in [keys(&[]), keys(&["a"; FILTER_WORDS_MAX + 1]), keys(&[&long])] {
            assert!(!filter.is_within_limits());
            let mut out = Vec::new();
            filter.encode(&mut out);
            assert!(Filter::read(&mut Reader::new(&out, "a filter")).is_err());
        }
    }
}
