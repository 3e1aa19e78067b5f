//! Who is killed.

use super::run::Run;
use crate::chaos::Failure;

/// A process of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Victim {
    Relay,
    Postgres,
    Broker,
}

impl Victim {
    pub const ALL: [Self; 3] = [Self::Relay, Self::Postgres, Self::Broker];

    /// `kill -9`.
    ///
    /// # Errors
    /// It does not go.
    pub fn kill(self, run: &mut Run<'_>) -> Result<(), Failure> {
        match self {
            Self::Relay => {
                let Some(mut relay) = run.relays.pop() else { return Ok(()) };
                relay.kill9()
            }
            Self::Postgres => Ok(run.stage.postgres.kill9()?),
            Self::Broker => run.stage.broker.kill(),
        }
    }

    /// Starts it again on what is left.
    ///
    /// # Errors
    /// It does not come up.
    pub fn revive(self, run: &mut Run<'_>) -> Result<(), Failure> {
        match self {
            Self::Relay => run.start_relay(),
            Self::Postgres => Ok(run.stage.postgres.start_again()?),
            Self::Broker => run.stage.start_broker(),
        }
    }
}
