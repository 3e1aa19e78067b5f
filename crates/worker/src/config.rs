//! The configuration file: what it may say, and what is wrong with it, with the place of each problem.
//!
//! A file is judged as a whole: every table is read by itself, so one slip does not hide the next. What the tables
//! mean is with whom they configure: each source and target owns its settings.

mod document;
mod kinds;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::Deserialize;
use service::settings::{Kind, Values, setting};
use service::{duration_words, settings};

use crate::cron;
use crate::io::coord::{batches, refusal, shares};
pub use crate::pool::{BREAKER, LIMITS, PIPELINE};
use crate::pool::{PipelineSettings, Settings, TargetSettings};
use crate::value::Time;

use document::Document;
pub use kinds::{SourceKind, TargetKind};

/// Longest grace time.
const GRACE_MAX: Duration = Duration::from_secs(3600);

settings! {
    /// `[worker]`: what concerns the process.
    pub const WORKER in Some("MILLRACE_WORK_");

    /// How long runs may go on once the worker is asked to stop
    grace: Kind::Time(Duration::ZERO..=GRACE_MAX), default("30s");
    /// Serves /metrics, /health, /ready and /status on this address; none: not at all
    metrics: Kind::Judged("ADDR:PORT", judge_address), or("none"), default("127.0.0.1:9190");
    /// File with the secret of whoever may pause and resume the worker there, PUT and DELETE /pause with Authorization:
    /// Bearer; none: nobody may
    orders_secret_file: Kind::Text("FILE"), or("none"), default("none");
}

fn judge_address(text: &str) -> Result<(), String> {
    let wanted =
        "and may be an address with a port, as 127.0.0.1:9190 or [::1]:9190, or none".to_owned();
    text.parse::<std::net::SocketAddr>().map(drop).map_err(|_| wanted)
}

/// `[worker]`: [`WORKER`] has the meaning of each.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WorkerSettings {
    pub grace: Time,
    pub metrics: String,
    pub orders_secret_file: String,
}

impl Default for WorkerSettings {
    fn default() -> Self {
        let values = Values::defaults(&[WORKER]);
        Self {
            grace: Time(values.time("grace")),
            metrics: values.words("metrics"),
            orders_secret_file: values.text("orders_secret_file").unwrap_or("none").to_owned(),
        }
    }
}

impl WorkerSettings {
    /// Where it serves.
    pub fn metrics_address(&self) -> Option<&str> {
        (self.metrics != "none").then_some(self.metrics.as_str())
    }

    /// Where the secret is of whoever may pause it.
    pub fn orders_secret_file(&self) -> Option<&str> {
        (self.orders_secret_file != "none").then_some(self.orders_secret_file.as_str())
    }

    fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.orders_secret_file().is_some() && self.metrics_address().is_none() {
            problems
                .push("orders_secret_file is set, and metrics is none: orders come there".into());
        }
        if self.grace.0 > GRACE_MAX {
            let bounds = setting(WORKER, "grace").bounds();
            let grace = duration_words(self.grace.0);
            problems.push(format!("grace is {grace}, and may be {bounds}"));
        }
        if let Err(why) = setting(WORKER, "metrics").check(&self.metrics) {
            problems.push(format!("metrics is `{}`, {why}", self.metrics));
        }
        problems
    }
}

/// A whole configuration, without a problem that can be seen without connecting.
#[derive(Clone, Debug)]
pub struct Config {
    pub worker: WorkerSettings,
    /// Pipelines, and the limits of targets: by the order in the file, and by their names.
    pub pool: Settings,
    pub sources: BTreeMap<String, SourceKind>,
    pub targets: BTreeMap<String, TargetKind>,
    /// `[[schedule]]`.
    pub schedules: Vec<cron::Settings>,
    /// `[batches]`: this worker tracks them.
    pub batches: Option<batches::Settings>,
    /// `[target.NAME.share]`: a rate of several processes together.
    pub shares: BTreeMap<String, shares::Settings>,
    raw: Raw,
}

/// The file as it was read, to see what has changed in another one. It may hold secrets, and is not shown.
#[derive(Clone, Default)]
struct Raw(toml::Table);

impl fmt::Debug for Raw {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("***")
    }
}

/// Something that is wrong with a configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
    /// The key: `target.hook.url`.
    pub path: String,
    pub what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, column, path, what } = self;
        match path.as_str() {
            "" => write!(out, "{line}:{column}: {what}"),
            path => write!(out, "{line}:{column}: {path}: {what}"),
        }
    }
}

impl Config {
    /// Reads the text of a file. Variables win over it: those of [`WORKER`]; and for `[source.NAME]`,
    /// `MILLRACE_WORK_SOURCE_NAME_URL` replaces `url`.
    ///
    /// # Errors
    /// All problems, in the order of the file.
    pub fn parse(text: &str, variables: &BTreeMap<String, String>) -> Result<Self, Vec<Problem>> {
        let mut document = Document::parse(text);
        let mut config = read(&mut document, variables);
        config.raw = Raw(text.parse().unwrap_or_default());
        match document.into_problems() {
            problems if problems.is_empty() => Ok(config),
            problems => Err(problems),
        }
    }

    /// What a worker that runs with `self` cannot change in place to become `new`, a sentence each. What is left of the
    /// pipelines and of the limits of targets, the pool judges itself: see `Pool::change`.
    pub fn fixed(&self, new: &Self) -> Vec<String> {
        let mut reasons = Vec::new();
        for key in ["worker", "source", "schedule", "batches"] {
            if self.raw.0.get(key) != new.raw.0.get(key) {
                reasons.push(format!("{key} has changed: that needs a restart"));
            }
        }
        let sources = |config: &Self| -> Vec<(String, String)> {
            let all = config.pool.pipelines.iter();
            all.map(|one| (one.name.clone(), one.source.clone())).collect()
        };
        if sources(self) != sources(new) {
            reasons.push(
                "pipelines were added, removed or moved to another source: that needs a restart"
                    .to_owned(),
            );
        }
        let names = |config: &Self| config.targets.keys().cloned().collect::<Vec<_>>();
        if names(self) != names(new) {
            reasons.push("targets were added or removed: that needs a restart".to_owned());
        }
        for name in new.targets.keys().filter(|name| self.targets.contains_key(*name)) {
            let kept = |config: &Self| {
                let target = config.raw.0.get("target")?.get(name)?;
                Some(["kind", "share"].map(|key| target.get(key).cloned()))
            };
            if kept(self) != kept(new) {
                reasons.push(format!(
                    "target.{name}: its kind or its share has changed: that needs a restart"
                ));
            }
        }
        reasons
    }

    /// The source and the target of each pipeline, in the order of `pool.pipelines`.
    pub fn kinds(&self) -> impl Iterator<Item = (&PipelineSettings, &SourceKind, &TargetKind)> {
        self.pool.pipelines.iter().map(|pipeline| {
            let source = self.sources.get(&pipeline.source).expect("the file was judged");
            (pipeline, source, self.targets.get(&pipeline.target).expect("the file was judged"))
        })
    }
}

impl fmt::Display for Config {
    /// What holds, defaults and all. Secrets are not shown.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "{:#?}", self.worker)?;
        for (name, source) in &self.sources {
            writeln!(out, "[source.{name}] {source:#?}")?;
        }
        for (name, target) in &self.targets {
            writeln!(out, "[target.{name}] {target:#?}")?;
        }
        for limits in &self.pool.targets {
            writeln!(out, "[target.{}.limits] {limits:#?}", limits.name)?;
        }
        self.pool
            .pipelines
            .iter()
            .try_for_each(|pipeline| writeln!(out, "[[pipeline]] {pipeline:#?}"))
    }
}

fn read(document: &mut Document, variables: &BTreeMap<String, String>) -> Config {
    let mut worker_table = document.table("worker").unwrap_or_default();
    for setting in WORKER {
        let (key, variable) = (setting.key, setting.variable_name().unwrap_or_default());
        if let Some(value) = variables.get(&variable) {
            worker_table.set(key, value, &variable);
        }
    }
    let worker: WorkerSettings = document.read(&worker_table).unwrap_or_default();
    document.judge(&worker_table, worker.problems());

    let mut sources = BTreeMap::new();
    let mut places: BTreeMap<String, String> = BTreeMap::new();
    for (name, mut table) in document.tables("source") {
        let variable =
            format!("MILLRACE_WORK_SOURCE_{}_URL", name.to_uppercase().replace('-', "_"));
        if let Some(url) = variables.get(&variable) {
            table.set("url", url, &variable);
        }
        if let Some(before) = places.insert(kinds::place(&table), name.clone()) {
            let what = format!(
                "takes from the same queue as [source.{before}]: two pipelines would share its jobs by chance; \
                 name another queue, or remove one of them"
            );
            document.judge(&table, vec![what]);
        }
        if let Some(source) = SourceKind::read(document, &mut table) {
            sources.insert(name, source);
        }
    }
    let (mut targets, mut limits, mut shared) = (BTreeMap::new(), Vec::new(), BTreeMap::new());
    for (name, mut table) in document.tables("target") {
        let mut limit = TargetSettings::new(&name);
        if let Some(inner) = document.inner(&mut table, "limits") {
            limit = document.read(&inner).unwrap_or_default();
            limit.name.clone_from(&name);
            let problems = strip(limit.problems(), &name);
            document.judge(&inner, problems);
        }
        if let Some(inner) = document.inner(&mut table, "share")
            && let Some(share) = document.read::<shares::Settings>(&inner)
        {
            let mut problems = share.problems();
            if limit.rate.is_some_and(|rate| rate < share.rate) {
                problems.push("rate is more than the target's limits allow one process".to_owned());
            }
            document.judge(&inner, problems);
            // What one process may use is granted; this is what a grant cannot exceed.
            limit.rate = limit.rate.or(Some(share.rate));
            shared.insert(name.clone(), share);
        }
        limits.push(limit);
        if let Some(target) = TargetKind::read(document, &mut table) {
            targets.insert(name, target);
        }
    }
    let pipelines = pipelines(document, (&places, &limits));
    let schedules = schedules(document, &sources);
    let batches = document.table("batches").and_then(|table| {
        let settings = document.read::<batches::Settings>(&table)?;
        document.judge(&table, settings.problems());
        Some(settings)
    });
    document.refuse_others();
    let pool = Settings { pipelines, targets: limits, ..Settings::default() };
    Config {
        worker,
        pool,
        sources,
        targets,
        schedules,
        batches,
        shares: shared,
        raw: Raw::default(),
    }
}

fn pipelines(
    document: &mut Document,
    (sources, targets): (&BTreeMap<String, String>, &[TargetSettings]),
) -> Vec<PipelineSettings> {
    let mut pipelines: Vec<PipelineSettings> = Vec::new();
    let tables = document.list("pipeline");
    if tables.is_empty() {
        document.refuse("pipeline", "there is none: add [[pipeline]] with name, source and target");
    }
    let known: Vec<&str> = sources.values().map(String::as_str).collect();
    for table in tables {
        let Some(pipeline) = document.read::<PipelineSettings>(&table) else { continue };
        let mut problems = strip(pipeline.problems(), &pipeline.name);
        let PipelineSettings { name, source, target, .. } = &pipeline;
        if !document.has("source", source) {
            problems.push(format!("source `{source}` is not there; {}", listed("source", &known)));
        }
        if !target.is_empty() && !targets.iter().any(|one| one.name == *target) {
            let known: Vec<&str> = targets.iter().map(|one| one.name.as_str()).collect();
            problems.push(format!("target `{target}` is not there; {}", listed("target", &known)));
        }
        for before in &pipelines {
            if before.name == *name {
                problems.push(format!("name `{name}` is another pipeline's already"));
            }
            if before.source == *source && !source.is_empty() {
                let before = &before.name;
                problems.push(format!(
                    "source `{source}` is taken by pipeline `{before}` already: one queue has one pipeline"
                ));
            }
        }
        document.judge(&table, problems);
        pipelines.push(pipeline);
    }
    pipelines
}

fn schedules(
    document: &mut Document,
    sources: &BTreeMap<String, SourceKind>,
) -> Vec<cron::Settings> {
    let mut schedules: Vec<cron::Settings> = Vec::new();
    for table in document.list("schedule") {
        let Some(mut schedule) = document.read::<cron::Settings>(&table) else { continue };
        let mut problems = schedule.problems();
        let only = sources.keys().next().filter(|_| sources.len() == 1);
        schedule.source = schedule.source.or(only.cloned());
        match schedule.source.as_ref().map(|name| (name, sources.get(name))) {
            None => problems.push("source has to say which one: the file has several".to_owned()),
            Some((name, None)) => problems.push(format!("source `{name}` is not there")),
            Some((_, Some(kind))) => problems.extend(refusal(kind.word(), "schedules")),
        }
        if schedules.iter().any(|before| before.name == schedule.name) {
            problems.push(format!("name `{}` is another schedule's already", schedule.name));
        }
        document.judge(&table, problems);
        schedules.push(schedule);
    }
    schedules
}

fn listed(what: &str, names: &[&str]) -> String {
    match names {
        [] => format!("the file has no [{what}.NAME]"),
        names => format!("there are: {}", names.join(", ")),
    }
}

/// Sentences without the name of what they are about: it stands in the path.
fn strip(problems: Vec<String>, name: &str) -> Vec<String> {
    let ends = [format!("pipeline {name:?}: "), format!("target {name:?}: ")];
    let short = |text: String| {
        let rest = ends.iter().find_map(|begin| text.strip_prefix(begin.as_str()));
        rest.map(str::to_owned).unwrap_or(text)
    };
    problems.into_iter().map(short).collect()
}

#[cfg(test)]
mod tests;
