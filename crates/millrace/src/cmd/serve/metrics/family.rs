//! Numbers of one name, and how OpenMetrics writes them.

use machine::QueueStatus;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

/// What kind of number it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Grows until the node ends.
    Total,
    /// A total of microseconds, exported in seconds.
    TotalMicros,
    /// Grows until the node ends, in bytes.
    TotalBytes,
    /// How it stands now.
    Now,
    /// The same, in bytes.
    NowBytes,
    /// The same, in milliseconds, exported in seconds.
    NowMillis,
    /// Always 1: what it says is in its labels.
    Always,
    /// How long things took, in microseconds, exported in seconds.
    Times,
    /// How large things were, in bytes.
    Sizes,
}

impl Kind {
    pub(super) fn metric_type(self) -> MetricType {
        match self {
            Self::Total | Self::TotalMicros | Self::TotalBytes => MetricType::Counter,
            Self::Now | Self::NowBytes | Self::NowMillis | Self::Always => MetricType::Gauge,
            Self::Times | Self::Sizes => MetricType::Histogram,
        }
    }

    pub(super) fn unit(self) -> Option<Unit> {
        match self {
            Self::Total | Self::Now | Self::Always => None,
            Self::TotalMicros | Self::NowMillis | Self::Times => Some(Unit::Seconds),
            Self::TotalBytes | Self::NowBytes | Self::Sizes => Some(Unit::Bytes),
        }
    }

    /// How many of what is counted make one of what is exported.
    fn scale(self) -> f64 {
        match self {
            Self::TotalMicros | Self::Times => 1e6,
            Self::NowMillis => 1e3,
            Self::Total
            | Self::TotalBytes
            | Self::Now
            | Self::NowBytes
            | Self::Always
            | Self::Sizes => 1.0,
        }
    }
}

pub(super) type Labels = Vec<(&'static str, String)>;

/// Numbers of one name.
#[derive(Clone, Debug)]
pub(super) struct Family {
    /// What its name begins with: whose name it is.
    pub(super) prefix: &'static str,
    /// Without the prefix, and without what its kind adds.
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) meaning: &'static str,
    pub(super) samples: Samples,
}

#[derive(Clone, Debug)]
pub(super) enum Samples {
    /// They differ in their labels.
    Each(Vec<(Labels, u64)>),
    Histogram {
        labels: Labels,
        bounds: &'static [u64],
        /// One more than there are bounds.
        counts: Vec<u64>,
        sum: u64,
    },
    /// One of each queue that is shown.
    Queues(fn(&QueueStatus) -> u64),
    /// What each queue that is shown is.
    QueueInfo,
}

/// A queue that is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) vhost: String,
    pub(super) queue: String,
    /// As RabbitMQ names it here.
    pub(super) queue_type: &'static str,
    pub(super) status: QueueStatus,
}

impl Family {
    pub(super) fn one(
        prefix: &'static str,
        name: &'static str,
        kind: Kind,
        meaning: &'static str,
        value: u64,
    ) -> Self {
        let samples = Samples::Each(vec![(Labels::new(), value)]);
        Self { prefix, name, kind, meaning, samples }
    }

    /// With these labels in front of those that it has.
    pub(super) fn with(mut self, labels: &Labels) -> Self {
        let prepend = |own: &mut Labels| *own = [&labels[..], own].concat();
        match &mut self.samples {
            Samples::Each(samples) => samples.iter_mut().for_each(|(own, _)| prepend(own)),
            Samples::Histogram { labels: own, .. } => prepend(own),
            Samples::Queues(_) | Samples::QueueInfo => {}
        }
        self
    }

    fn encode(
        &self,
        queues: &[Shown],
        encoder: &mut DescriptorEncoder<'_>,
    ) -> Result<(), std::fmt::Error> {
        let Self { prefix, name, kind, meaning, samples } = self;
        let (name, unit) = (format!("{prefix}_{name}"), kind.unit());
        let mut metric =
            encoder.encode_descriptor(&name, meaning, unit.as_ref(), kind.metric_type())?;
        match samples {
            Samples::Each(samples) => {
                for (labels, value) in samples {
                    match labels.is_empty() {
                        true => encode_value(*kind, *value, &mut metric)?,
                        false => encode_value(*kind, *value, &mut metric.encode_family(labels)?)?,
                    }
                }
            }
            Samples::Histogram { labels, bounds, counts, sum } => {
                let bounds = bounds.iter().map(|bound| *bound as f64 / kind.scale());
                let bounds = bounds.chain([f64::INFINITY]);
                let buckets: Vec<_> = bounds.zip(counts.iter().copied()).collect();
                let (sum, count) = (*sum as f64 / kind.scale(), counts.iter().sum());
                let write = |metric: &mut MetricEncoder<'_>| {
                    metric.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
                };
                match labels.is_empty() {
                    true => write(&mut metric)?,
                    false => write(&mut metric.encode_family(labels)?)?,
                }
            }
            Samples::Queues(value) => {
                for Shown { vhost, queue, status, .. } in queues {
                    let labels = [("vhost", vhost.as_str()), ("queue", queue)];
                    encode_value(*kind, value(status), &mut metric.encode_family(&labels)?)?;
                }
            }
            Samples::QueueInfo => {
                for Shown { vhost, queue, queue_type, .. } in queues {
                    let labels = [
                        ("vhost", vhost.as_str()),
                        ("queue", queue),
                        ("queue_type", queue_type),
                        ("membership", "leader"),
                    ];
                    encode_value(*kind, 1, &mut metric.encode_family(&labels)?)?;
                }
            }
        }
        Ok(())
    }
}

fn encode_value(
    kind: Kind,
    value: u64,
    encoder: &mut MetricEncoder<'_>,
) -> Result<(), std::fmt::Error> {
    let scaled = value as f64 / kind.scale();
    let signed = i64::try_from(value).unwrap_or(i64::MAX);
    match (kind.metric_type(), kind.scale() == 1.0) {
        (MetricType::Counter, true) => encoder.encode_counter::<NoLabelSet, u64, f64>(&value, None),
        (MetricType::Counter, false) => {
            encoder.encode_counter::<NoLabelSet, f64, f64>(&scaled, None)
        }
        (_, true) => encoder.encode_gauge(&signed),
        (_, false) => encoder.encode_gauge(&scaled),
    }
}

/// What one answer holds.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) families: Vec<Family>,
    pub(super) queues: Vec<Shown>,
}

impl Page {
    /// As OpenMetrics writes it.
    pub(super) fn text(self) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self));
        let mut text = String::new();
        // Writing into memory cannot fail.
        let _ = prometheus_client::encoding::text::encode(&mut text, &registry);
        text
    }
}

impl Collector for Page {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        self.families.iter().try_for_each(|family| family.encode(&self.queues, &mut encoder))
    }
}
