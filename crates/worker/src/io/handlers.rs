//! Jobs that are executed by functions of this process.
//!
//! A handler that panics fails its own job, which is tried again. A program that is built with `panic = "abort"`
//! ends instead: its jobs come back from their broker, and one that kills every worker is set aside after as many
//! deliveries as its source allows.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;

use crate::error::Error;
use crate::io::source::BoxFuture;
use crate::io::target::{Run, Target};
use crate::job::Message;
use crate::outcome::Outcome;

/// Why a handler could not do its job.
///
/// Every error becomes one with `?`, and means: try again.
#[derive(Debug)]
pub struct Failure {
    outcome: Outcome,
}

impl Failure {
    /// It may work later: another attempt, when the backoff says.
    pub fn retry(why: impl Into<String>) -> Self {
        Self { outcome: Outcome::retry(why) }
    }

    /// It may work later, and not before `after`.
    pub fn retry_after(after: Duration, why: impl Into<String>) -> Self {
        let (after, why) = (Some(after), why.into());
        Self { outcome: Outcome::Retry { after, why, rest: None, publishes: Vec::new() } }
    }

    /// No attempt can work: the job is set aside at once, with these words.
    pub fn reject(why: impl Into<String>) -> Self {
        Self { outcome: Outcome::reject(why) }
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::retry(error.to_string())
    }
}

/// What goes around handlers: logs, measures, refuses, changes the message.
///
/// ```
/// use worker::io::handlers::{Middleware, Next};
/// use worker::io::source::BoxFuture;
/// use worker::{Message, Outcome};
///
/// struct Logged;
///
/// impl Middleware for Logged {
///     fn around(&self, job: Message, next: Next) -> BoxFuture<Outcome> {
///         Box::pin(async move {
///             let id = job.id.clone();
///             let outcome = next.run(job).await;
///             eprintln!("{id}: {}", outcome.name());
///             outcome
///         })
///     }
/// }
/// ```
pub trait Middleware: Send + Sync + 'static {
    /// Runs `next` or does not, and says the outcome.
    fn around(&self, job: Message, next: Next) -> BoxFuture<Outcome>;
}

type Handler = Arc<dyn Fn(Message) -> BoxFuture<Outcome> + Send + Sync>;

/// What a middleware goes around: the next one, or the handler.
pub struct Next {
    handlers: Arc<Handlers>,
    /// How many middlewares are outside.
    passed: usize,
}

impl Next {
    /// Goes on with this message.
    pub fn run(self, job: Message) -> BoxFuture<Outcome> {
        let Self { handlers, passed } = self;
        match handlers.middlewares.get(passed) {
            Some(middleware) => {
                let next = Self { handlers: Arc::clone(&handlers), passed: passed + 1 };
                middleware.around(job, next)
            }
            None => handlers.handle(job),
        }
    }
}

/// Functions by the type of their jobs.
#[derive(Default)]
pub struct Handlers {
    by_kind: BTreeMap<String, Handler>,
    otherwise: Option<Handler>,
    middlewares: Vec<Box<dyn Middleware>>,
}

impl Handlers {
    /// Jobs of this type, whose body is JSON of a `T`.
    pub fn typed<T, F, Fut>(&mut self, kind: &str, handler: F)
    where
        T: DeserializeOwned + Send + 'static,
        F: Fn(T) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        self.add(
            kind,
            Arc::new(move |job: Message| {
                // An empty body is what `()` and structs without fields are sent as.
                let body: &[u8] = if job.body.is_empty() { b"null" } else { &job.body };
                match serde_json::from_slice::<T>(body) {
                    Ok(payload) => {
                        let run = handler(payload);
                        Box::pin(async move {
                            match run.await {
                                Ok(()) => Outcome::done(),
                                Err(failure) => failure.outcome,
                            }
                        })
                    }
                    Err(error) => {
                        let why = format!(
                            "the body is not what the handler of `{}` takes: {error}",
                            job.kind
                        );
                        Box::pin(std::future::ready(Outcome::reject(why)))
                    }
                }
            }),
        );
    }

    /// Jobs of this type, as they are.
    pub fn raw<F, Fut>(&mut self, kind: &str, handler: F)
    where
        F: Fn(Message) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Outcome> + Send + 'static,
    {
        self.add(kind, Arc::new(move |job| Box::pin(handler(job))));
    }

    /// Jobs of all other types.
    pub fn otherwise<F, Fut>(&mut self, handler: F)
    where
        F: Fn(Message) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Outcome> + Send + 'static,
    {
        self.otherwise = Some(Arc::new(move |job| Box::pin(handler(job))));
    }

    /// Goes around all of them, inside of those that were added before.
    pub fn middleware(&mut self, middleware: impl Middleware) {
        self.middlewares.push(Box::new(middleware));
    }

    fn add(&mut self, kind: &str, handler: Handler) {
        let before = self.by_kind.insert(kind.to_owned(), handler);
        assert!(before.is_none(), "the job type {kind:?} has one handler");
    }

    fn handle(&self, job: Message) -> BoxFuture<Outcome> {
        match self.by_kind.get(&job.kind).or(self.otherwise.as_ref()) {
            Some(handler) => handler(job),
            None => {
                let why = format!("no handler takes jobs of type `{}`", job.kind);
                Box::pin(std::future::ready(Outcome::reject(why)))
            }
        }
    }
}

impl Target for Handlers {
    fn run(self: Arc<Self>, run: Run) -> BoxFuture<Vec<Outcome>> {
        Box::pin(async move {
            let mut outcomes = Vec::with_capacity(run.jobs.len());
            for job in run.jobs {
                let outcome = match self.middlewares.is_empty() {
                    true => self.handle(job).await,
                    false => Next { handlers: Arc::clone(&self), passed: 0 }.run(job).await,
                };
                outcomes.push(outcome);
            }
            outcomes
        })
    }

    fn check(self: Arc<Self>) -> BoxFuture<Result<String, Error>> {
        let kinds: Vec<&str> = self.by_kind.keys().map(String::as_str).collect();
        let told = format!("handlers for {}", kinds.join(", "));
        Box::pin(std::future::ready(Ok(told)))
    }
}

/// A middleware that says each job's outcome and time at the level `debug`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Logged;

impl Middleware for Logged {
    fn around(&self, job: Message, next: Next) -> BoxFuture<Outcome> {
        if !tracing::enabled!(tracing::Level::DEBUG) {
            return next.run(job);
        }
        Box::pin(async move {
            let (id, kind, attempt) = (job.id.clone(), job.kind.clone(), job.attempt);
            let begun = Instant::now();
            let outcome = next.run(job).await;
            tracing::debug!(id, kind, attempt, outcome = outcome.name(), took = ?begun.elapsed(), "job ended");
            outcome
        })
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize)]
    struct Sum {
        left: u32,
        right: u32,
    }

    fn job(kind: &str, body: &'static [u8]) -> Message {
        Message { kind: kind.into(), body: body.into(), ..Message::default() }
    }

    async fn run(handlers: Handlers, jobs: Vec<Message>) -> Vec<Outcome> {
        Arc::new(handlers).run(Run { jobs, deadline: Instant::now() }).await
    }

    fn sums() -> Handlers {
        let mut handlers = Handlers::default();
        handlers.typed("sum", async |sum: Sum| {
            let sum = sum.left.checked_add(sum.right).ok_or_else(|| Failure::reject("too much"))?;
            u8::try_from(sum)?;
            Ok(())
        });
        handlers
    }

    #[tokio::test]
    async fn a_typed_handler_is_given_its_payload_and_its_errors_are_retries() {
        let jobs = vec![
            job("sum", br#"{"left":1,"right":2}"#),
            job("sum", br#"{"left":255,"right":2}"#),
            job("sum", br#"{"left":4294967295,"right":2}"#),
            job("sum", b"no json"),
            job("other", b""),
        ];
        let names: Vec<_> = run(sums(), jobs).await.iter().map(Outcome::name).collect();
        assert_eq!(names, ["done", "retry", "reject", "reject", "reject"]);
    }

    struct Renames(&'static str, &'static str);

    impl Middleware for Renames {
        fn around(&self, mut job: Message, next: Next) -> BoxFuture<Outcome> {
            if job.kind == self.0 {
                job.kind = self.1.to_owned();
            }
            next.run(job)
        }
    }

    #[tokio::test]
    async fn the_first_middleware_is_the_outermost() {
        let mut handlers = sums();
        handlers.middleware(Renames("a", "b"));
        handlers.middleware(Renames("b", "sum"));
        let outcomes = run(handlers, vec![job("a", br#"{"left":1,"right":2}"#)]).await;
        assert_eq!(outcomes, [Outcome::done()]);
    }

    #[tokio::test]
    async fn one_handler_can_take_all_other_types() {
        let mut handlers = sums();
        handlers.otherwise(async |job: Message| Outcome::retry(job.kind));
        assert_eq!(run(handlers, vec![job("x", b"")]).await, [Outcome::retry("x")]);
    }
}
