//! Problems of all nodes.

use cluster::NotTold;

use super::api::{Api, now_ms};
use super::{asking, seen};
use crate::access::Sight;
use crate::limits::CLOCKS_APART_MS;
use crate::neighbour::Question;
use crate::node::name_of;
use crate::problems::{Gathered, Problem, Told, What};
use crate::reply::Reply;

/// What is wrong, for who sees so much.
pub(super) async fn problems(api: &Api, sight: &Sight) -> Reply {
    let gathered = gather(api).await;
    Reply::of(gathered.shown(&api.0.cluster.catalog(), sight))
}

/// Asks all nodes.
pub(super) async fn gather(api: &Api) -> Gathered {
    let began_ms = now_ms();
    let (own, others) =
        tokio::join!(own(api), asking::ask_others::<Told>(api, &Question::Problems));
    let ended_ms = now_ms();
    let me = api.0.cluster.node();
    let (mut told, mut silent, mut left_out) = (Vec::new(), Vec::new(), own.left_out);
    told.extend(read(&own).map(|problem| (me, problem)));
    for (node, said) in others {
        match said {
            Ok(said) => {
                left_out += said.left_out;
                told.extend(read(&said).map(|problem| (node, problem)));
                if let Some(ahead_ms) = apart(said.now_ms, began_ms, ended_ms) {
                    let what = What::ClockApart { node: node.0, ahead_ms };
                    told.push((me, Problem { what, since_s: ended_ms / 1000 }));
                }
            }
            // That it cannot be reached is a problem of its own.
            Err(NotTold::Unreachable) => {}
            Err(_) => silent.push(name_of(node)),
        }
    }
    Gathered { told, silent, left_out, at_ms: ended_ms }
}

/// What is wrong as this node sees it, as of now.
pub(super) async fn own(api: &Api) -> Told {
    seen::look(api).await;
    api.0.seen.lock().await.watch.told(now_ms())
}

/// Problems that this program knows.
fn read(told: &Told) -> impl Iterator<Item = Problem> + '_ {
    told.problems.iter().filter_map(|problem| serde_json::from_value(problem.clone()).ok())
}

/// By how much a clock that said `now_ms` between two times of ours is ahead for certain, if it is much.
fn apart(now_ms: u64, began_ms: u64, ended_ms: u64) -> Option<i64> {
    let ahead = now_ms.saturating_sub(ended_ms);
    let behind = began_ms.saturating_sub(now_ms);
    let signed = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
    match () {
        () if ahead > CLOCKS_APART_MS => Some(signed(ahead)),
        () if behind > CLOCKS_APART_MS => Some(-signed(behind)),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_apart_if_no_delay_explains_it() {
        assert_eq!(apart(10_500, 10_000, 11_000), None);
        assert_eq!(apart(12_500, 10_000, 11_000), None);
        assert_eq!(apart(20_000, 10_000, 11_000), Some(9_000));
        assert_eq!(apart(1_000, 10_000, 11_000), Some(-9_000));
    }
}
