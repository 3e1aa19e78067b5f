//! Changes of the catalog for those who have no session of their own.

use std::fmt;
use std::time::Duration;

use machine::{CatalogCommand, CatalogReply};
use tokio::time::timeout;

use super::handle::ClusterHandle;
use crate::request::{Answer, Request, Ticket};

/// Why it is not known what became of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotChanged {
    /// No majority of the nodes answers: the change may still be made.
    NoMajority,
    /// The node stops.
    Stopping,
}

impl fmt::Display for NotChanged {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::NoMajority => "no majority of the nodes answers. Start the other nodes",
            Self::Stopping => "the node stops",
        })
    }
}

impl ClusterHandle {
    /// Changes the catalog, and returns when this node routes by the change. A change that is refused is an answer, too.
    ///
    /// # Errors
    /// There was no answer within `wait`.
    pub async fn change(
        &self,
        command: CatalogCommand,
        wait: Duration,
    ) -> Result<CatalogReply, NotChanged> {
        timeout(wait, self.change_at_last(command)).await.unwrap_or(Err(NotChanged::NoMajority))
    }

    async fn change_at_last(&self, command: CatalogCommand) -> Result<CatalogReply, NotChanged> {
        // Dropping the receiver ends the session.
        let (session, mut receiver) = self.open_session();
        let asked = Ticket(1);
        let mut requests = vec![Request::Catalog { ticket: asked, command }];
        if !self.submit(session, &mut requests).await {
            return Err(NotChanged::Stopping);
        }
        let mut answers = Vec::new();
        while receiver.recv(&mut answers).await {
            for answer in answers.drain(..) {
                // All sessions hear of alarms; nothing else was asked.
                if let Answer::AppendFailed { .. } = answer {
                    return Err(NotChanged::NoMajority);
                }
                if let Answer::Stopping = answer {
                    return Err(NotChanged::Stopping);
                }
                if let Answer::Catalog { ticket, reply } = answer
                    && ticket == asked
                {
                    return Ok(reply);
                }
            }
        }
        Err(NotChanged::Stopping)
    }
}
