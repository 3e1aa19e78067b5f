use std::sync::Arc;

use super::*;

fn dead(token: &str) -> Refused<'_> {
    Refused {
        job_id: "job-1",
        token,
        reason: "BadDeviceToken",
        certainty: Certainty::Candidate,
        since_ms: None,
    }
}

fn tokens() -> Arc<DeadTokens> {
    let feedback: Feedback =
        toml::from_str("routing_key = 'dead'\nwait = '30s'").expect("it is valid");
    Arc::new(DeadTokens::new("apns", "com.example", Some(feedback)))
}

fn later(seconds: u64) -> Instant {
    Instant::now() + Duration::from_secs(seconds)
}

#[tokio::test]
async fn a_waiting_token_is_declared_dead_by_a_success() {
    let tokens = tokens();
    let asks = tokio::spawn({
        let tokens = tokens.clone();
        async move { tokens.outcome(dead("token-1"), later(600)).await }
    });
    while tokens.successes.receiver_count() == 0 {
        tokio::task::yield_now().await;
    }
    tokens.success();
    let outcome = asks.await.expect("it does not panic");
    let Outcome::TokenDead { publishes, .. } = outcome else { panic!("{outcome:?}") };
    assert_eq!(publishes.len(), 1);
}

#[tokio::test]
async fn a_wait_ends_with_the_time_of_the_run() {
    let tokens = tokens();
    let outcome = tokens.outcome(dead("token-1"), Instant::now()).await;
    let Outcome::Retry { why, publishes, .. } = outcome else { panic!("{outcome:?}") };
    assert!(why.contains("credentials"), "{why}");
    assert!(publishes.is_empty());
}

#[tokio::test]
async fn a_run_that_is_dropped_gives_its_place_back() {
    let tokens = tokens();
    for _ in 0..2 * crate::feedback::WAITING_MAX {
        let waits = tokens.fate(dead("token-1"), later(600));
        tokio::select! {
            biased;
            fate = waits => panic!("it should wait: {fate:?}"),
            () = std::future::ready(()) => {}
        }
    }
    assert_eq!(tokens.counts(), (0, 0), "nobody was held for want of a place");
}
