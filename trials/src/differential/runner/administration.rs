//! Operations that go over the brokers' HTTP APIs: policies, and what the second user may do.
//!
//! The user of a program, and its policies, have the program's prefix in their names, so that programs do not meet. Every
//! pattern begins with it, too.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use amqp::FieldValue;
use serde_json::{Value, json};

use super::super::program::{Operation, Program, Verb};
use super::names;
use crate::http::{self, GUEST};

/// The second user's password.
pub(super) const PASSWORD: &str = "a secret of trials";
/// How long a broker may take for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// Options of a policy that are no part of its definition.
const ABOUT: [&str; 3] = ["operator", "priority", "to"];

/// Where the policies of a program and its second user are asked for.
pub(super) struct Administration<'a> {
    pub(super) http: SocketAddr,
    pub(super) prefix: &'a str,
}

impl Administration<'_> {
    /// The second user's name.
    pub(super) fn user(&self) -> String {
        format!("{}ann", self.prefix)
    }

    fn ask(&self, method: &str, path: &str, body: &Value) -> io::Result<u16> {
        let answer = http::ask(self.http, GUEST, (method, path), body, ANSWER_MAX)?;
        Ok(answer.status)
    }

    /// The second user comes, and may do nothing yet.
    pub(super) fn make_user(&self) -> io::Result<()> {
        let path = format!("/users/{}", self.user());
        self.ask("PUT", &path, &json!({ "password": PASSWORD, "tags": "" }))?;
        Ok(())
    }

    /// The second user may do everything, so that what is left can be read.
    pub(super) fn grant_all(&self) -> io::Result<()> {
        let path = format!("/permissions/%2F/{}", self.user());
        self.ask("PUT", &path, &json!({ "configure": ".*", "write": ".*", "read": ".*" }))?;
        Ok(())
    }

    /// Does the operation. The answer is for the trace.
    pub(super) fn carry_out(&self, operation: &Operation) -> io::Result<String> {
        let user = self.user();
        let word = |index: usize| operation.word(index).to_owned();
        let (method, path, body) = match operation.verb {
            Verb::Policy => {
                let body = self.policy(operation);
                ("PUT", self.policy_path(operation), body)
            }
            Verb::DeletePolicy => ("DELETE", self.policy_path(operation), Value::Null),
            Verb::Grant => {
                let [configure, write, read] = [0, 1, 2].map(|index| self.pattern(&word(index)));
                let body = json!({ "configure": configure, "write": write, "read": read });
                ("PUT", format!("/permissions/%2F/{user}"), body)
            }
            Verb::Topics => {
                let exchange = names::own(self.prefix, &word(0));
                let body = json!({ "exchange": exchange, "write": word(1), "read": word(2) });
                ("PUT", format!("/topic-permissions/%2F/{user}"), body)
            }
            Verb::ClearTopics => ("DELETE", format!("/topic-permissions/%2F/{user}"), Value::Null),
            _ => unreachable!("it goes over AMQP"),
        };
        let status = self.ask(method, &path, &body)?;
        // RabbitMQ says that topic permissions are new if the user has none in the vhost, whatever the exchange.
        let is_done = operation.verb == Verb::Topics && (200..300).contains(&status);
        Ok(if is_done { format!("{method} done") } else { format!("{method} {status}") })
    }

    fn policy_path(&self, operation: &Operation) -> String {
        let kind = if operation.has("operator") { "operator-policies" } else { "policies" };
        format!("/{kind}/%2F/{}{}", self.prefix, operation.word(0))
    }

    fn policy(&self, operation: &Operation) -> Value {
        let options = operation.options.iter().filter(|(name, _)| !ABOUT.contains(&name.as_str()));
        let definition: serde_json::Map<String, Value> = options
            .filter_map(|(name, value)| {
                let value = names::own_value(self.prefix, value.as_ref()?);
                Some((name.clone(), as_json(&value)))
            })
            .collect();
        json!({
            "pattern": self.pattern(operation.word(1)),
            "apply-to": operation.text("to").unwrap_or_else(|| "all".to_owned()),
            "priority": operation.number("priority").unwrap_or(0),
            "definition": definition,
        })
    }

    /// A regular expression on names: `all`, or some of `q1` (one), `q` (all that begin so) and `default` (the default
    /// exchange), with `|` between them. Empty: none.
    fn pattern(&self, words: &str) -> String {
        if words.is_empty() || words == "all" {
            return if words.is_empty() { String::new() } else { ".*".to_owned() };
        }
        let one = |word: &str| match word {
            "default" => r"amq\.default$".to_owned(),
            "q" | "e" => format!("{}{word}", escaped(self.prefix)),
            name => format!("{}{name}$", escaped(self.prefix)),
        };
        let all: Vec<String> = words.split('|').map(one).collect();
        format!("^({})", all.join("|"))
    }

    /// Policies and the user go.
    pub(super) fn clean(&self, program: &Program) -> io::Result<()> {
        let policies = program.0.iter().filter(|operation| operation.verb == Verb::Policy);
        let mut paths: Vec<String> =
            policies.map(|operation| self.policy_path(operation)).collect();
        paths.sort_unstable();
        paths.dedup();
        for path in paths {
            self.ask("DELETE", &path, &Value::Null)?;
        }
        if program.has_user() {
            let path = format!("/users/{}", self.user());
            self.ask("DELETE", &path, &Value::Null)?;
        }
        Ok(())
    }
}

/// A prefix has dots, which stand for themselves.
fn escaped(prefix: &str) -> String {
    prefix.replace('.', r"\.")
}

/// A value of a script as JSON.
fn as_json(value: &FieldValue) -> Value {
    match value {
        FieldValue::I32(number) => Value::from(*number),
        FieldValue::I64(number) => Value::from(*number),
        FieldValue::F64(number) => Value::from(*number),
        FieldValue::Bool(truth) => Value::from(*truth),
        FieldValue::LongStr(text) => Value::from(String::from_utf8_lossy(text).into_owned()),
        FieldValue::Array(values) => values.iter().map(as_json).collect(),
        FieldValue::I8(_)
        | FieldValue::U8(_)
        | FieldValue::I16(_)
        | FieldValue::U16(_)
        | FieldValue::U32(_)
        | FieldValue::F32(_)
        | FieldValue::Decimal { .. }
        | FieldValue::Bytes(_)
        | FieldValue::Timestamp(_)
        | FieldValue::Table(_)
        | FieldValue::Void => Value::Null,
    }
}
