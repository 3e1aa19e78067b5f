//! History as RabbitMQ shows it: `..._details` with samples, newest first, of the age and at the distance that the query
//! asks for.

use serde_json::{Value, json};

use super::{SPAN_S_MAX, Window};
use crate::asked::Asked;
use crate::reply::Problem;

/// How far back samples go, and how far they are apart: seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) age_s: u64,
    pub(crate) step_s: u64,
}

/// What samples a query wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ranges {
    /// Of how many messages there are.
    pub(crate) lengths: Option<Range>,
    /// Of how many came and went.
    pub(crate) rates: Option<Range>,
    /// Of what a node uses.
    pub(crate) node: Option<Range>,
}

/// What a number of points is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Height,
    Count,
}

impl Range {
    fn of(asked: &Asked, of: &str) -> Result<Option<Self>, Problem> {
        let seconds = |name: String| match asked.word(&name) {
            None => Ok(None),
            Some(text) => match text.parse::<u64>() {
                Ok(seconds) if seconds > 0 => Ok(Some(seconds.min(SPAN_S_MAX))),
                Ok(_) | Err(_) => {
                    Err(Problem::bad(format!("{name} should be a number of seconds, 1 or more")))
                }
            },
        };
        let (age, step) = (seconds(format!("{of}_age"))?, seconds(format!("{of}_incr"))?);
        Ok(age.zip(step).map(|(age_s, step_s)| Self { age_s, step_s }))
    }

    pub(crate) fn window(self, now_ms: u64) -> Window {
        Window::back(self.age_s, now_ms)
    }
}

impl Ranges {
    pub(crate) fn of(asked: &Asked) -> Result<Self, Problem> {
        Ok(Self {
            lengths: Range::of(asked, "lengths")?,
            rates: Range::of(asked, "msg_rates")?,
            node: Range::of(asked, "node_stats")?,
        })
    }
}

/// Adds to the details of a number that is `now` so much how fast it changes, if they do not say so yet, and the samples
/// of a range, if there is one. A count is shown as RabbitMQ does: as the total at each time.
pub(crate) fn add_to(
    details: &mut Value,
    kind: Kind,
    range: Option<Range>,
    (window, points): (Window, &[Option<u64>]),
    now: (u64, u64),
) {
    let step_s = range.map_or(window.step_s, |range| range.step_s);
    let samples = samples(kind, step_s, (window, points), now);
    let (first, last) = (samples[0], samples[samples.len() - 1]);
    let slope = |(newer_ms, newer): (u64, u64), (older_ms, older): (u64, u64)| {
        let seconds = newer_ms.saturating_sub(older_ms) as f64 / 1000.0;
        if seconds > 0.0 { (newer as f64 - older as f64) / seconds } else { 0.0 }
    };
    if !details.is_object() {
        let came = points.last().copied().flatten().unwrap_or_default();
        let rate = match kind {
            Kind::Count => came as f64 / window.step_s as f64,
            Kind::Height => slope(first, samples.get(1).copied().unwrap_or(first)),
        };
        *details = json!({ "rate": rate });
    }
    let (Value::Object(fields), true) = (details, range.is_some()) else { return };
    let sum: f64 = samples.iter().map(|(_, number)| *number as f64).sum();
    let shown = samples.iter().map(|(at, number)| json!({ "sample": number, "timestamp": at }));
    fields.insert("samples".to_owned(), shown.collect());
    fields.insert("avg_rate".to_owned(), slope(first, last).into());
    fields.insert("avg".to_owned(), (sum / samples.len() as f64).into());
}

/// When, and how many: the newest first. There is always one.
fn samples(
    kind: Kind,
    step_s: u64,
    (window, points): (Window, &[Option<u64>]),
    now: (u64, u64),
) -> Vec<(u64, u64)> {
    let mut samples = vec![now];
    let together = step_s.div_ceil(window.step_s).max(1) as usize;
    let mut total = now.1;
    for (place, some) in points.rchunks(together).enumerate() {
        let known: Vec<u64> = some.iter().copied().flatten().collect();
        let back = (place * together) as u64 * window.step_s * 1000;
        let at = window.ends_ms() - back;
        let number = match kind {
            Kind::Height => known.last().copied(),
            Kind::Count => (!known.is_empty()).then_some(total),
        };
        total = total.saturating_sub(known.iter().sum::<u64>());
        samples.extend(number.map(|number| (at, number)));
    }
    samples
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(query: &str) -> Result<Ranges, Problem> {
        let query = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        Ranges::of(&Asked { query, ..Asked::default() })
    }

    #[test]
    fn a_query_says_how_far_back_and_how_far_apart() {
        let ranges = asked("lengths_age=600&lengths_incr=60&msg_rates_age=5").unwrap();
        let lengths = Some(Range { age_s: 600, step_s: 60 });
        assert_eq!(ranges, Ranges { lengths, ..Ranges::default() });
        assert_eq!(asked("").unwrap(), Ranges::default());
        for wrong in ["lengths_age=x&lengths_incr=1", "msg_rates_age=60&msg_rates_incr=0"] {
            assert!(matches!(asked(wrong), Err(Problem::Bad(_))), "{wrong}");
        }
    }

    #[test]
    fn samples_are_totals_for_counts_and_heights_for_heights() {
        let range = Some(Range { age_s: 40, step_s: 20 });
        let window = Window { step_s: 10, first: 1, count: 4 };
        let points = [None, Some(5), Some(6), Some(7)];
        let now = (55_000, 100);
        let counts = samples(Kind::Count, 20, (window, &points), now);
        assert_eq!(counts, [(55_000, 100), (50_000, 100), (30_000, 87)]);
        let heights = samples(Kind::Height, 20, (window, &points), now);
        assert_eq!(heights, [(55_000, 100), (50_000, 7), (30_000, 5)]);
        let mut details = json!({ "rate": 3.0 });
        add_to(&mut details, Kind::Count, range, (window, &points), now);
        assert_eq!((&details["rate"], &details["avg_rate"]), (&json!(3.0), &json!(0.52)));
        assert_eq!(details["samples"][2], json!({ "sample": 87, "timestamp": 30_000 }));
        let mut details = Value::Null;
        add_to(&mut details, Kind::Height, range, (window, &[None; 4]), now);
        assert_eq!((&details["avg"], &details["rate"]), (&json!(100.0), &json!(0.0)));
        let mut details = Value::Null;
        add_to(&mut details, Kind::Count, None, (window, &points), now);
        assert_eq!(details, json!({ "rate": 0.7 }));
    }
}
