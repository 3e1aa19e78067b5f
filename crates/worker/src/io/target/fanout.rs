//! Runs of jobs to tokens: reads them, fills requests, asks the gate for refused tokens, and folds the answers.

use std::time::Instant;

use crate::error::Error;
use crate::feedback::Certainty;
use crate::io::http::{Answer, Failure};
use crate::io::target::Run;
use crate::io::target::push::{DeadTokens, Refused};
use crate::job::Message;
use crate::outcome::{Outcome, Scope};
use crate::target::fanout::{Body, Fate, Fill, Part, fold, plan};
use crate::target::push::Verdict;
use crate::target::session::Lease;

/// Shortest secret that is looked for in what a provider says.
const SECRET_BYTES_MIN: usize = 4;

/// One token in a request.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a> {
    pub job: &'a Message,
    pub token: &'a str,
    pub body: &'a Body,
}

/// Who sends a request to several tokens.
pub trait Sender: Sync {
    /// Sends it; gives a verdict for each piece, in their order.
    fn send(
        &self,
        pieces: &[Piece<'_>],
        deadline: Instant,
    ) -> impl Future<Output = Vec<Verdict>> + Send;
}

/// A token that the provider refused as dead.
struct Suspect {
    part: Part,
    reason: String,
    certainty: Certainty,
    since_ms: Option<u64>,
}

/// Executes a run.
pub async fn run<S: Sender>(sender: &S, dead: &DeadTokens, fill: Fill, run: Run) -> Vec<Outcome> {
    let Run { jobs, deadline } = run;
    let mut parsed: Vec<Result<Body, String>> =
        jobs.iter().map(|job| Body::parse(&job.body)).collect();
    let bodies: Vec<Option<Body>> = parsed
        .iter_mut()
        .map(|body| {
            std::mem::replace(body, Err(String::new())).map_err(|why| *body = Err(why)).ok()
        })
        .collect();
    let mut fates: Vec<Vec<Option<Fate>>> = bodies
        .iter()
        .map(|body| vec![None; body.as_ref().map_or(0, |body| body.tokens().len())])
        .collect();
    let mut suspects = Vec::new();
    let mut stop: Option<Verdict> = None;
    for chunk in plan(&bodies, fill) {
        let pieces: Vec<Piece<'_>> =
            chunk.iter().filter_map(|part| piece(&jobs, &bodies, *part)).collect();
        let verdicts = match &stop {
            Some(verdict) => vec![verdict.clone(); pieces.len()],
            None => sender.send(&pieces, deadline).await,
        };
        assert_eq!(verdicts.len(), chunk.len(), "each token has a verdict");
        let has_success = verdicts.contains(&Verdict::Done);
        if has_success {
            dead.success();
        }
        for (part, verdict) in chunk.into_iter().zip(verdicts) {
            if stops(&verdict) {
                stop = Some(verdict.clone());
            }
            let fate = match verdict {
                Verdict::Dead { reason, certainty, since_ms } => {
                    let suspect = Suspect { part, reason, certainty, since_ms };
                    if !has_success {
                        suspects.push(suspect);
                        continue;
                    }
                    let refused = refused(&jobs, &bodies, &suspect);
                    refused.map(|refused| dead.beside(refused))
                }
                other => Fate::of(other),
            };
            fates[part.job][part.token] = fate;
        }
    }
    for suspect in suspects {
        if let Some(refused) = refused(&jobs, &bodies, &suspect) {
            fates[suspect.part.job][suspect.part.token] =
                Some(dead.fate(refused, deadline).await.of_token(&suspect.reason));
        }
    }
    let outcomes = parsed.into_iter().zip(bodies).zip(fates);
    let outcomes = outcomes.map(|((parsed, body), fates)| match body {
        Some(body) => {
            fold(&body, fates.into_iter().map(|fate| fate.unwrap_or_else(none)).collect())
        }
        None => Outcome::reject(parsed.err().unwrap_or_default()),
    });
    outcomes.collect()
}

fn none() -> Fate {
    Fate::Retry { after: None, why: "the provider did not answer for the token".to_owned() }
}

fn piece<'a>(jobs: &'a [Message], bodies: &'a [Option<Body>], part: Part) -> Option<Piece<'a>> {
    let body = bodies[part.job].as_ref()?;
    Some(Piece { job: &jobs[part.job], token: &body.tokens()[part.token], body })
}

fn refused<'a>(
    jobs: &'a [Message],
    bodies: &'a [Option<Body>],
    suspect: &'a Suspect,
) -> Option<Refused<'a>> {
    let piece = piece(jobs, bodies, suspect.part)?;
    Some(Refused {
        job_id: &piece.job.id,
        token: piece.token,
        reason: &suspect.reason,
        certainty: suspect.certainty,
        since_ms: suspect.since_ms,
    })
}

/// Whether the rest of a run need not be sent: it would be answered the same.
pub(super) fn stops(verdict: &Verdict) -> bool {
    match verdict {
        Verdict::Config { .. } | Verdict::Auth { .. } => true,
        Verdict::Throttle { scope, .. } => *scope == Scope::Target,
        Verdict::Done | Verdict::Retry { .. } | Verdict::Dead { .. } | Verdict::Reject { .. } => {
            false
        }
    }
}

/// What a request without an answer means.
pub fn failed(provider: &str, failure: Failure) -> Verdict {
    let retry = |why: String| Verdict::Retry { after: None, why: format!("{provider}: {why}") };
    match failure {
        Failure::Forbidden { address } => Verdict::Config {
            why: format!("{provider}: the address {address} may not be connected to"),
        },
        Failure::Connect { why } => retry(format!("no connection: {why}")),
        Failure::Timeout => retry("no answer in time; it may have been sent".to_owned()),
        Failure::Broken { why } => {
            retry(format!("the connection broke: {why}; it may have been sent"))
        }
    }
}

/// `Retry-After` in seconds, where the answer has it. At most a day.
pub fn retry_after(answer: &Answer) -> Option<std::time::Duration> {
    let text = answer.headers.get(http::header::RETRY_AFTER)?.to_str().ok()?;
    let seconds: u64 = text.trim().parse().ok()?;
    Some(std::time::Duration::from_secs(seconds.min(24 * 3600)))
}

/// The answer without these texts, if the provider repeats them: what it says is logged and stored with dead jobs.
pub(super) fn hide(mut answer: Answer, secrets: &[&str]) -> Answer {
    for secret in secrets.iter().filter(|secret| secret.len() >= SECRET_BYTES_MIN) {
        let text = String::from_utf8_lossy(&answer.body);
        if text.contains(secret) {
            answer.body = text.replace(secret, "***").into();
        }
    }
    answer
}

/// For `doctor`: whether there is an access token.
pub(super) fn checked(provider: &str, lease: Result<Lease, Verdict>) -> Result<String, Error> {
    let verdict = match lease {
        Ok(_) => return Ok(format!("{provider} answers and gives an access token")),
        Err(verdict) => verdict,
    };
    Err(match verdict {
        Verdict::Config { why } | Verdict::Auth { why } | Verdict::Reject { why } => {
            Error::setup(why)
        }
        Verdict::Retry { why, .. } | Verdict::Throttle { why, .. } => Error::away(provider, why),
        Verdict::Done | Verdict::Dead { .. } => Error::away(provider, "no access token"),
    })
}
