//! From a configuration file to a worker.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::config::{Config, SourceKind, TargetKind};
use crate::cron::Cron;
use crate::error::Error;
use crate::io::coord::{Broker, Queues};
use crate::io::secret;
use crate::io::source::redis::Side;
use crate::io::source::{
    Source, amqp::Amqp, mns::Mns, redis, redis_list::RedisList, redis_stream::RedisStream, sqs::Sqs,
};
use crate::io::target::{
    Target, apns::Apns, fcm::Fcm, getui::Getui, huawei::Huawei, program::Program, webhook::Webhook,
    xiaomi::Xiaomi,
};
use crate::io::worker::{Errands, Plan, PlanPipeline, PlanTarget};

/// Largest configuration file, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// What the names of our variables begin with.
const VARIABLES: &str = "MILLRACE_WORK_";

/// Reads a file, and the variables that win over it.
///
/// # Errors
/// The file cannot be read; or what is wrong with it, a line for each problem: `FILE:LINE:COLUMN: KEY: what`.
pub fn read(path: &Path) -> Result<Config, Error> {
    let shown = path.display();
    let wrong = |error: std::io::Error| Error::setup(format!("{shown}: {error}"));
    let bytes = std::fs::metadata(path).map_err(wrong)?.len();
    if bytes > FILE_BYTES_MAX {
        return Err(Error::setup(format!("{shown}: {bytes} bytes are more than {FILE_BYTES_MAX}")));
    }
    let text = std::fs::read_to_string(path).map_err(wrong)?;
    let variables: BTreeMap<String, String> =
        std::env::vars().filter(|(name, _)| name.starts_with(VARIABLES)).collect();
    Config::parse(&text, &variables).map_err(|problems| {
        let lines: Vec<String> = problems.iter().map(|one| format!("{shown}:{one}")).collect();
        Error::setup(lines.join("\n"))
    })
}

/// Makes the sources and targets: reads secrets and certificates, connects nowhere.
///
/// # Errors
/// A secret or a file is not there or is wrong: all such problems, a line each.
pub fn plan(config: &Config) -> Result<Plan, Error> {
    let mut problems = Vec::new();
    let mut targets = Vec::new();
    for limits in &config.pool.targets {
        let Some(kind) = config.targets.get(&limits.name) else { continue };
        match target(kind) {
            Ok(target) => targets.push(PlanTarget { target, kind: kind.word().to_owned() }),
            Err(error) => problems.push(format!("[target.{}]: {error}", limits.name)),
        }
    }
    let mut pipelines = Vec::new();
    for (pipeline, kind, _) in config.kinds() {
        match source(kind) {
            Ok(source) => pipelines.push(PlanPipeline { source }),
            Err(error) => problems.push(format!("[source.{}]: {error}", pipeline.source)),
        }
    }
    match problems.as_slice() {
        [] => {
            let (settings, grace) = (config.pool.clone(), config.worker.grace.0);
            Ok(Plan { settings, pipelines, targets, grace, errands: errands(config)? })
        }
        problems => Err(Error::setup(problems.join("\n"))),
    }
}

/// Schedules, batches and shared rates, each at its broker.
fn errands(config: &Config) -> Result<Errands, Error> {
    let mut errands = Errands::default();
    for (name, kind) in &config.sources {
        let Some(broker) = broker(kind)? else { continue };
        let mine = |one: &&crate::cron::Settings| one.source.as_ref() == Some(name);
        let schedules: Vec<_> = config.schedules.iter().filter(mine).cloned().collect();
        if !schedules.is_empty() {
            errands.schedules.push((Cron::new(schedules)?, broker.clone()));
        }
        if let Some(batches) = &config.batches {
            errands.batches.push((batches.clone(), broker));
        }
    }
    for (at, limits) in config.pool.targets.iter().enumerate() {
        let Some(share) = config.shares.get(&limits.name) else { continue };
        let mut brokers = config.kinds().filter(|(pipeline, ..)| pipeline.target == limits.name);
        let found = brokers.find_map(|(_, kind, _)| broker(kind).transpose()).transpose()?;
        let wrong = || {
            Error::setup(format!(
                "[target.{}.share]: no pipeline of it has a source of AMQP or Redis",
                limits.name
            ))
        };
        let broker = found.ok_or_else(wrong)?;
        errands.shares.push((at, limits.name.clone(), share.clone(), broker));
    }
    Ok(errands)
}

/// Where processes that have this source can agree; none: nowhere.
fn broker(kind: &SourceKind) -> Result<Option<Broker>, Error> {
    let redis = |settings: &redis::Settings, queues| -> Result<Option<Broker>, Error> {
        Ok(Some(Broker::Redis { client: settings.server().client()?, queues }))
    };
    match kind {
        SourceKind::Amqp(settings) => Ok(Some(Broker::Amqp { url: amqp_url(settings)? })),
        SourceKind::RedisStream(settings) => redis(settings, Queues::Streams),
        SourceKind::RedisList(settings) => match settings.take_from {
            Side::Right => redis(settings, Queues::ListsFromRight),
            Side::Left => redis(settings, Queues::ListsFromLeft),
        },
        SourceKind::Mns(_) | SourceKind::Sqs(_) => Ok(None),
    }
}

fn amqp_url(settings: &crate::source::amqp::Settings) -> Result<client::Url, Error> {
    let text = secret::read(&settings.url)?;
    text.parse().map_err(|bad: client::BadUrl| Error::setup(bad.to_string()))
}

/// A source of these settings.
///
/// # Errors
/// A secret or a file is not there or is wrong.
pub fn source(kind: &SourceKind) -> Result<Box<dyn Source>, Error> {
    Ok(match kind.clone() {
        SourceKind::Amqp(settings) => Box::new(Amqp::new(*settings)?),
        SourceKind::RedisStream(settings) => Box::new(RedisStream::new(*settings)?),
        SourceKind::RedisList(settings) => Box::new(RedisList::new(*settings)?),
        SourceKind::Mns(settings) => Box::new(Mns::new(*settings)?),
        SourceKind::Sqs(settings) => Box::new(Sqs::new(*settings)?),
    })
}

/// A target of these settings.
///
/// # Errors
/// A secret or a file is not there or is wrong.
pub fn target(kind: &TargetKind) -> Result<Arc<dyn Target>, Error> {
    Ok(match kind.clone() {
        TargetKind::Webhook(settings) => Arc::new(Webhook::new(*settings)?),
        TargetKind::Program(settings) => Arc::new(Program::new(*settings)?),
        TargetKind::Apns(settings) => Arc::new(Apns::new(&settings)?),
        TargetKind::Fcm(settings) => Arc::new(Fcm::new(*settings)?),
        TargetKind::Huawei(settings) => Arc::new(Huawei::new(*settings)?),
        TargetKind::Xiaomi(settings) => Arc::new(Xiaomi::new(*settings)?),
        TargetKind::Getui(settings) => Arc::new(Getui::new(*settings)?),
    })
}

/// Looks whether a source is there, without taking a job: for `doctor`.
///
/// # Errors
/// It is away, or its queue is not there.
pub async fn look(kind: &SourceKind) -> Result<String, Error> {
    match kind {
        SourceKind::Amqp(settings) => look_amqp(settings).await,
        SourceKind::RedisStream(settings) | SourceKind::RedisList(settings) => {
            look_redis(settings).await
        }
        SourceKind::Mns(settings) => {
            Ok(format!("settings are right; {} was not asked", settings.endpoint))
        }
        SourceKind::Sqs(_) => Ok("settings are right; SQS was not asked".to_owned()),
    }
}

async fn look_amqp(settings: &crate::source::amqp::Settings) -> Result<String, Error> {
    let url = amqp_url(settings)?;
    let options = client::Options::named("millrace work doctor");
    let away = |error: client::Error| Error::away(url.to_string(), error);
    let mut connection = client::Connection::open(&url, &options).await.map_err(away)?;
    let found = connection.look_up_queue(&settings.queue).await;
    let queue = &settings.queue;
    let told = match found {
        Ok(found) => format!("queue `{queue}` is there, {} jobs wait", found.message_count),
        Err(_) if settings.declare => format!("queue `{queue}` is not there yet; run makes it"),
        Err(error) => return Err(away(error)),
    };
    // What was to be seen was seen.
    let _ = connection.close().await;
    Ok(told)
}

async fn look_redis(settings: &redis::Settings) -> Result<String, Error> {
    let lines = redis::Lines::new(settings.server().client()?, 1);
    let mut ask = ::redis::cmd("TYPE");
    ask.arg(&settings.queue);
    let found = lines.ask(0, &ask).await;
    let found = found.map_err(|error| redis::failure(&settings.url, &error))?;
    let kind = redis::text(found).unwrap_or_default();
    Ok(format!("Redis answers; the key `{}` is: {kind}", settings.queue))
}
