//! What an AMQP source is set up with.

use serde::Deserialize;

use crate::limits::BUFFER_MAX;
use crate::value::Secret;

/// An AMQP source: one queue of one broker.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// `amqp://user:password@host:5672/vhost`, or `amqps://` for TLS, with `cacertfile`, `certfile`, `keyfile` and
    /// `server_name_indication` behind a `?`.
    pub url: Secret,
    /// The queue that jobs come from.
    pub queue: String,
    /// Jobs in hand at most, started or not: 1 to 65535. The default is 1000.
    #[serde(default = "prefetch")]
    pub prefetch: u16,
    /// Declare the queue, durable, if it is not there. Otherwise a queue that is missing ends the worker.
    #[serde(default)]
    pub declare: bool,
    /// The type of a queue that is declared. Quorum queues count how often a job comes back.
    #[serde(default)]
    pub queue_type: QueueType,
    /// Where dead jobs go. The default is the queue's name with `.dead` behind it. It is declared, durable.
    #[serde(default)]
    pub dead_queue: Option<String>,
    /// RabbitMQ: the type of the queues in which retries wait (`QUEUE.retry.MS`). Quorum queues hand a job on
    /// without a moment in which a crash could lose it.
    #[serde(default)]
    pub retry_queue_type: QueueType,
    /// Count how often a job without an order key comes back unsettled where the broker does not: it is published
    /// again before it is executed again.
    #[serde(default = "yes")]
    pub count_deliveries: bool,
    /// Consumers with a higher priority are served first (`x-priority`).
    #[serde(default)]
    pub priority: Option<i32>,
}

/// RabbitMQ's queue types.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum QueueType {
    #[default]
    Quorum,
    Classic,
}

impl QueueType {
    /// As `x-queue-type` has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Quorum => "quorum",
            Self::Classic => "classic",
        }
    }
}

impl Settings {
    /// The usual settings for a queue.
    pub fn new(url: Secret, queue: impl Into<String>) -> Self {
        Self {
            url,
            queue: queue.into(),
            prefetch: prefetch(),
            declare: false,
            queue_type: QueueType::default(),
            dead_queue: None,
            retry_queue_type: QueueType::default(),
            count_deliveries: true,
            priority: None,
        }
    }

    /// Where dead jobs go.
    pub fn dead_queue(&self) -> String {
        self.dead_queue.clone().unwrap_or_else(|| dead_queue_of(&self.queue))
    }

    /// What is wrong with them, in words.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.queue.is_empty() {
            problems.push("queue is empty: name the queue that jobs come from".to_owned());
        }
        // The longest name that is made of it: its retry queue.
        if self.queue.len() > 230 {
            problems.push("queue is longer than 230 bytes".to_owned());
        }
        if !(1..=BUFFER_MAX).contains(&usize::from(self.prefetch)) {
            problems.push(format!("prefetch is {}: it has to be 1 to {BUFFER_MAX}", self.prefetch));
        }
        match self.dead_queue.as_deref() {
            Some("") => {
                problems.push("dead_queue is empty: leave it out for QUEUE.dead".to_owned())
            }
            Some(name) if name == self.queue => {
                problems
                    .push("dead_queue is the queue itself: dead jobs would go round".to_owned());
            }
            Some(_) | None => (),
        }
        problems
    }
}

/// Where dead jobs of a queue go, unless the settings say otherwise.
pub fn dead_queue_of(queue: &str) -> String {
    format!("{queue}.dead")
}

fn prefetch() -> u16 {
    1000
}

fn yes() -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Settings, toml::de::Error> {
        toml::from_str(text)
    }

    #[test]
    fn a_url_and_a_queue_are_enough() {
        let settings = of("url = \"amqp://localhost\"\nqueue = \"jobs\"").expect("it is enough");
        assert_eq!(settings.problems(), Vec::<String>::new());
        assert_eq!((settings.prefetch, settings.dead_queue()), (1000, "jobs.dead".to_owned()));
        assert!(!settings.declare);
    }

    #[test]
    fn an_unknown_word_is_refused_and_a_wrong_one_described() {
        assert!(of("url = \"u\"\nqueue = \"q\"\nprefetsh = 1").is_err());
        let wrong = of("url = \"u\"\nqueue = \"q\"\nprefetch = 0\ndead_queue = \"q\"");
        let problems = wrong.expect("it can be read").problems();
        assert!(
            problems[0].contains("prefetch") && problems[1].contains("dead_queue"),
            "{problems:?}"
        );
    }

    #[test]
    fn the_password_is_not_shown() {
        let settings =
            of("url = \"amqp://u:canary@localhost\"\nqueue = \"q\"").expect("it is enough");
        assert!(!format!("{settings:?}").contains("canary"));
    }
}
