//! Operators' questions between nodes: whole answers, refusals, and nobody who waits for ever.

use super::*;
use crate::limits::{ANSWER_BYTES_MAX, QUESTION_BYTES_MAX, QUESTIONS_UNREAD_MAX};

/// Long enough for anything that is answered.
const WAIT: Duration = TIMEOUT;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

async fn ask(node: &Node, of: u64, body: &'static [u8]) -> Result<Vec<u8>, NotTold> {
    node.peers.ask(NodeId(of), Bytes::from_static(body), WAIT).await
}

#[test]
fn answers_come_whole_whatever_their_length_and_order() {
    let (mut one, two) = pair();
    let mut unread = two.peers.questions().expect("taken once");
    assert!(two.peers.questions().is_none());
    runtime().block_on(async {
        for length in [0, 10, 300_000, 2 << 20, ANSWER_BYTES_MAX] {
            let answered = async {
                let question = unread.recv().await.unwrap();
                assert_eq!((question.from, &question.body[..]), (NodeId(1), &b"first"[..]));
                let later = unread.recv().await.unwrap();
                // The one that came last is answered first.
                later.reply.send(b"second".to_vec()).await;
                question.reply.send((0..length).map(|byte| byte as u8).collect()).await;
            };
            let (first, second, ()) =
                tokio::join!(ask(&one, 2, b"first"), ask(&one, 2, b"later"), answered);
            let expected: Vec<u8> = (0..length).map(|byte| byte as u8).collect();
            assert!(first.unwrap() == expected, "{length} bytes come as they were");
            assert_eq!(second.unwrap(), b"second");
        }
    });
    assert!(one.is_quiet(), "no shard hears of it");
}

#[test]
fn what_cannot_be_answered_is_refused() {
    let (one, two) = pair();
    runtime().block_on(async {
        assert_eq!(ask(&one, 3, b"who").await, Err(NotTold::Unreachable));
        let long = Bytes::from(vec![0; QUESTION_BYTES_MAX + 1]);
        assert_eq!(one.peers.ask(NodeId(2), long, WAIT).await, Err(NotTold::Refused));
        // As many as may wait are kept while nobody takes them; one more is refused at once.
        let waiting = async {
            let asked = (0..QUESTIONS_UNREAD_MAX).map(|_| ask(&one, 2, b"what"));
            let mut all = JoinAll(asked.map(Box::pin).collect());
            // Sent, and not answered.
            assert!(tokio::time::timeout(Duration::from_millis(50), all.next()).await.is_err());
            assert_eq!(ask(&one, 2, b"more").await, Err(NotTold::Refused));
        };
        waiting.await;
        let mut unread = two.peers.questions().unwrap();
        for _ in 0..QUESTIONS_UNREAD_MAX {
            drop(unread.recv().await.unwrap());
        }
        let refused = async { drop(unread.recv().await.unwrap()) };
        let (told, ()) = tokio::join!(ask(&one, 2, b"what"), refused);
        assert_eq!(told, Err(NotTold::Refused), "whoever drops a question refuses it");
        let long = async {
            let question = unread.recv().await.unwrap();
            question.reply.send(vec![0; ANSWER_BYTES_MAX + 1]).await;
        };
        let (told, ()) = tokio::join!(ask(&one, 2, b"what"), long);
        assert_eq!(told, Err(NotTold::Refused), "too long an answer");
        let late = one.peers.ask(NodeId(2), Bytes::new(), Duration::from_millis(1)).await;
        assert_eq!(late, Err(NotTold::Late));
    });
    assert_eq!(one.peers.shared.questions.open_count(), 0, "nothing waits any more");
}

#[test]
fn a_lost_connection_ends_what_waits_for_it() {
    let (one, two) = pair();
    let mut unread = two.peers.questions().unwrap();
    runtime().block_on(async {
        let lost = async {
            let question = unread.recv().await.unwrap();
            // Not for tasks: it waits for the thread of the peers.
            std::thread::scope(|scope| drop(scope.spawn(|| two.peers.set_members(&[]))));
            question
        };
        let (told, question) = tokio::join!(ask(&one, 2, b"what"), lost);
        assert_eq!(told, Err(NotTold::Unreachable));
        // To nobody: it ends all the same.
        question.reply.send(vec![0; 4 << 20]).await;
    });
}

/// Futures that are polled together.
struct JoinAll<F>(Vec<std::pin::Pin<Box<F>>>);

impl<F: Future> JoinAll<F> {
    /// The first that is done.
    async fn next(&mut self) -> F::Output {
        std::future::poll_fn(|cx| {
            for future in &mut self.0 {
                if let std::task::Poll::Ready(done) = future.as_mut().poll(cx) {
                    return std::task::Poll::Ready(done);
                }
            }
            std::task::Poll::Pending
        })
        .await
    }
}
