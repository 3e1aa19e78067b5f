//! What follows a job's end: the next jobs of its chain, and its note to the batch that it belongs to.
//!
//! Called with what the pool settled, not with the outcome of an attempt: only then is it known that a job is
//! over. Most jobs have neither, and cost one look at a field.

use crate::batches::{self, Batch, End};
use crate::chain;
use crate::job::Message;
use crate::settlement::{Publish, Settlement};

/// Whether what shall follow the job can follow it. A job that fails here is malformed: it is set aside before
/// it runs.
///
/// # Errors
/// In words, for `x-job-dead-why`.
pub fn check(message: &Message) -> Result<(), String> {
    let Some(extras) = &message.extras else { return Ok(()) };
    if let Some(then) = &extras.then {
        chain::parse(then).map_err(|why| format!("x-job-then: {why}"))?;
    }
    if let Some(batch) = &extras.batch {
        Batch::parse(batch).map_err(|why| format!("x-job-batch: {why}"))?;
    }
    Ok(())
}

/// Whether [`finish`] may have something to say at the job's end: the caller keeps the message until then.
pub fn is_followed(message: &Message) -> bool {
    message.extras.as_ref().is_some_and(|extras| extras.then.is_some() || extras.batch.is_some())
}

/// What is to be published before the source lets go of the job: add it to
/// [`Settled::publishes`](crate::Settled::publishes). Nothing for a job that comes again.
pub fn finish(message: &Message, settlement: &Settlement) -> Vec<Publish> {
    let Some(extras) = &message.extras else { return Vec::new() };
    let end = match settlement {
        Settlement::Done => End::Done,
        Settlement::Dead { .. } => End::Dead,
        Settlement::Return | Settlement::Later { .. } => return Vec::new(),
    };
    let mut publishes = Vec::new();
    // What cannot be read was refused by `check` before the job ran.
    if let (End::Done, Some(then)) = (end, &extras.then)
        && let Ok(next) = chain::parse(then)
    {
        publishes.extend(chain::publishes(&next, message));
    }
    if let Some(batch) = &extras.batch
        && let Ok(batch) = Batch::parse(batch)
    {
        publishes.push(batches::note(&batch, &message.id, end));
    }
    publishes
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::job::Extras;
    use crate::settlement::Cause;

    fn message(then: Option<&str>, batch: Option<&str>) -> Message {
        let (then, batch) = (then.map(str::to_owned), batch.map(str::to_owned));
        let extras = Some(Box::new(Extras { then, batch, ..Extras::default() }));
        Message { id: "j1".into(), extras, ..Message::default() }
    }

    fn dead() -> Settlement {
        Settlement::Dead { cause: Cause::Exhausted, why: "no".into() }
    }

    const THEN: &str = r#"[{"queue":"next"}]"#;
    const BATCH: &str = r#"{"id":"b","size":2,"completion":{"queue":"over"}}"#;

    #[test]
    fn a_chain_goes_on_after_success_alone_and_a_batch_counts_both_ends() {
        let job = message(Some(THEN), Some(BATCH));
        let to = |settlement: &Settlement| -> Vec<String> {
            finish(&job, settlement).into_iter().map(|publish| publish.routing_key).collect()
        };
        assert_eq!(to(&Settlement::Done), ["next", batches::QUEUE]);
        assert_eq!(to(&dead()), [batches::QUEUE]);
        let later =
            Settlement::Later { after: Duration::ZERO, attempt: 2, why: String::new(), rest: None };
        assert_eq!(to(&later), [""; 0]);
        assert_eq!(to(&Settlement::Return), [""; 0]);
    }

    #[test]
    fn a_job_whose_successors_cannot_be_published_is_malformed_before_it_runs() {
        assert_eq!(check(&message(Some(THEN), Some(BATCH))), Ok(()));
        assert_eq!(check(&Message::default()), Ok(()));
        assert!(check(&message(Some("[{}]"), None)).unwrap_err().starts_with("x-job-then"));
        assert!(check(&message(None, Some("{}"))).unwrap_err().starts_with("x-job-batch"));
        assert!(is_followed(&message(Some(THEN), None)) && !is_followed(&Message::default()));
    }
}
