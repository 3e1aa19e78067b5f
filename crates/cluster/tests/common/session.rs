//! A session of a real node that asks one thing at a time.
#![allow(dead_code, reason = "each test binary uses its part of this")]

use std::time::Duration;

use cluster::{Answer, AnswerReceiver, ClusterHandle, Request, Ticket};
use machine::{
    Arguments, Attributes, Batch, CatalogCommand, CatalogReply, GroupId, QueueId, SessionId,
    SessionOwner, Value,
};

/// How long an answer may take; they come at once.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) struct Session {
    pub(crate) cluster: ClusterHandle,
    pub(crate) id: SessionId,
    answers: AnswerReceiver,
    waiting: Vec<Answer>,
}

impl Session {
    pub(crate) fn open(cluster: &ClusterHandle) -> Self {
        let (id, answers) = cluster.open_session();
        Self { cluster: cluster.clone(), id, answers, waiting: Vec::new() }
    }

    /// The session of the node's dead-letter worker.
    pub(crate) fn open_dead_letter_worker(cluster: &ClusterHandle) -> Self {
        let (id, answers) = cluster.open_dead_letter_worker();
        Self { cluster: cluster.clone(), id, answers, waiting: Vec::new() }
    }

    pub(crate) async fn ask(&mut self, request: Request) {
        self.ask_all(vec![request]).await;
    }

    pub(crate) async fn ask_all(&mut self, mut requests: Vec<Request>) {
        assert!(self.cluster.submit(self.id, &mut requests).await);
    }

    pub(crate) async fn next(&mut self) -> Answer {
        while self.waiting.is_empty() {
            let heard = tokio::time::timeout(TIMEOUT, self.answers.recv(&mut self.waiting));
            assert!(heard.await.expect("an answer"));
        }
        self.waiting.remove(0)
    }

    /// Whether the node has said its last word.
    pub(crate) async fn is_over(&mut self) -> bool {
        !self.answers.recv(&mut self.waiting).await
    }

    /// A durable queue.
    pub(crate) async fn declare(&mut self, name: &str) -> (QueueId, GroupId) {
        self.declare_with(name, true, &[]).await
    }

    pub(crate) async fn declare_with(
        &mut self,
        name: &str,
        durable: bool,
        arguments: &[(&str, Value)],
    ) -> (QueueId, GroupId) {
        let arguments = arguments.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
        let command = CatalogCommand::DeclareQueue {
            vhost: "/".to_owned(),
            name: name.to_owned(),
            durable,
            auto_delete: false,
            exclusive: false,
            server_named: false,
            arguments: Arguments(arguments.collect()),
            by: SessionOwner { node: self.cluster.node(), session: self.id },
        };
        match self.change(command).await {
            CatalogReply::QueueDeclared { queue, group, .. } => (queue, group),
            other => panic!("not declared: {other:?}"),
        }
    }

    pub(crate) async fn change(&mut self, command: CatalogCommand) -> CatalogReply {
        self.ask(Request::Catalog { ticket: Ticket(1), command }).await;
        match self.next().await {
            Answer::Catalog { reply, .. } => reply,
            other => panic!("not changed: {other:?}"),
        }
    }

    /// One message, confirmed.
    pub(crate) async fn publish_with(
        &mut self,
        (queue, group): (QueueId, GroupId),
        attributes: &Attributes,
        body: &str,
    ) {
        let mut batch = Batch::new();
        batch.enqueue_with(&[queue], attributes, &[], body.as_bytes());
        self.ask(Request::Append { group, ticket: Ticket(2), batch, settles: Vec::new() }).await;
        let answer = self.next().await;
        assert!(matches!(answer, Answer::Appended { ticket: Ticket(2) }), "{answer:?}");
    }
}

pub(crate) fn run<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test)
}
