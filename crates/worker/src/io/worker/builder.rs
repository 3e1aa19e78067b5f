//! How a program of your own makes a worker.

use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::error::Error;
use crate::io::handlers::{Failure, Handlers, Middleware};
use crate::io::source::Source;
use crate::io::target::Target;
use crate::job::Message;
use crate::outcome::Outcome;
use crate::pool::{PipelineSettings, Settings, TargetSettings};

use super::{Errands, Plan, PlanPipeline, PlanTarget, Worker};

/// The name of what [`Builder::source`] and [`Builder::handler`] make.
const MAIN: &str = "main";

/// Collects what a [`Worker`] is made of.
///
/// A worker with one queue and functions of its own needs [`source`](Self::source) and [`handler`](Self::handler).
/// Further queues are [`pipeline`](Self::pipeline)s; webhooks, programs and push providers are
/// [`target`](Self::target)s.
pub struct Builder {
    handlers: Handlers,
    has_handlers: bool,
    pipelines: Vec<(PipelineSettings, Box<dyn Source>)>,
    targets: Vec<(TargetSettings, PlanTarget)>,
    settings: PipelineSettings,
    limits: TargetSettings,
    source: Option<Box<dyn Source>>,
    grace: Duration,
}

impl Worker {
    /// Begins a worker. See [`Builder`].
    pub fn builder() -> Builder {
        Builder {
            handlers: Handlers::default(),
            has_handlers: false,
            pipelines: Vec::new(),
            targets: Vec::new(),
            settings: PipelineSettings::new(MAIN, MAIN),
            limits: TargetSettings::new(MAIN),
            source: None,
            grace: Duration::from_secs(30),
        }
    }
}

impl Builder {
    /// Where the jobs of the handlers come from.
    #[must_use]
    pub fn source(mut self, source: impl Source) -> Self {
        self.source = Some(Box::new(source));
        self
    }

    /// Executes jobs of this type: their body is JSON of a `T`. A body that is none makes the job dead at once.
    ///
    /// Any error ends the attempt as [`Failure::retry`]; say [`Failure::reject`] where another attempt cannot help.
    ///
    /// ```
    /// # use worker::io::handlers::Failure;
    /// # use worker::io::worker::Worker;
    /// #[derive(serde::Deserialize)]
    /// struct Welcome { email: String }
    ///
    /// async fn welcome(job: Welcome) -> Result<(), Failure> {
    ///     if !job.email.contains('@') {
    ///         return Err(Failure::reject("this is no address"));
    ///     }
    ///     Ok(())
    /// }
    ///
    /// let builder = Worker::builder().handler("welcome", welcome);
    /// ```
    #[must_use]
    pub fn handler<T, F, Fut>(mut self, kind: &str, handler: F) -> Self
    where
        T: DeserializeOwned + Send + 'static,
        F: Fn(T) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        self.handlers.typed(kind, handler);
        self.has_handlers = true;
        self
    }

    /// Executes jobs of this type; the function is given the whole message, and says the outcome in full: what to
    /// publish next, how long to wait.
    #[must_use]
    pub fn raw<F, Fut>(mut self, kind: &str, handler: F) -> Self
    where
        F: Fn(Message) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Outcome> + Send + 'static,
    {
        self.handlers.raw(kind, handler);
        self.has_handlers = true;
        self
    }

    /// Executes jobs of types that no other handler has. Without it they are dead at once, and say so.
    #[must_use]
    pub fn otherwise<F, Fut>(mut self, handler: F) -> Self
    where
        F: Fn(Message) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Outcome> + Send + 'static,
    {
        self.handlers.otherwise(handler);
        self.has_handlers = true;
        self
    }

    /// Goes around every handler. The first that is added is the outermost.
    #[must_use]
    pub fn middleware(mut self, middleware: impl Middleware) -> Self {
        self.handlers.middleware(middleware);
        self
    }

    /// How many of the handlers' jobs run at once. Default 100.
    #[must_use]
    pub fn concurrency(mut self, jobs: usize) -> Self {
        self.settings.concurrency = jobs;
        self.limits.concurrency = self.limits.concurrency.max(jobs);
        self
    }

    /// How many of the handlers' jobs start per second at most. Default: no limit.
    #[must_use]
    pub fn rate(mut self, jobs_per_second: f64) -> Self {
        self.limits.rate = Some(jobs_per_second);
        self
    }

    /// Everything else of the handlers' pipeline: attempts, backoff, order, timeout.
    #[must_use]
    pub fn settings(mut self, change: impl FnOnce(&mut PipelineSettings)) -> Self {
        change(&mut self.settings);
        self
    }

    /// Another queue, whose target is `settings.target`: one that [`target`](Self::target) added, or `main` for the
    /// handlers.
    #[must_use]
    pub fn pipeline(mut self, settings: PipelineSettings, source: impl Source) -> Self {
        self.pipelines.push((settings, Box::new(source)));
        self
    }

    /// Something that executes jobs, under the name that its settings have.
    #[must_use]
    pub fn target(mut self, limits: TargetSettings, kind: &str, target: Arc<dyn Target>) -> Self {
        self.targets.push((limits, PlanTarget { target, kind: kind.to_owned() }));
        self
    }

    /// How long jobs may go on once the worker is asked to stop. Default 30 s.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// The worker.
    ///
    /// # Errors
    /// What is wrong with it, a line each.
    pub fn build(mut self) -> Result<Worker, Error> {
        if self.has_handlers {
            let target: Arc<dyn Target> = Arc::new(self.handlers);
            self.targets.push((self.limits, PlanTarget { target, kind: "handlers".to_owned() }));
        }
        if let Some(source) = self.source {
            self.pipelines.push((self.settings, source));
        }
        let (pipelines, sources): (Vec<_>, Vec<_>) = self.pipelines.into_iter().unzip();
        let (limits, targets) = self.targets.into_iter().unzip();
        let settings = Settings { pipelines, targets: limits, ..Settings::default() };
        let pipelines = sources.into_iter().map(|source| PlanPipeline { source }).collect();
        let errands = Errands::default();
        Worker::new(Plan { settings, pipelines, targets, grace: self.grace, errands })
    }
}
