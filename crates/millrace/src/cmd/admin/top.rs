//! `millrace top`: a broker, watched.
//!
//! ```text
//!   terminal ──keys──> screen ──> state: what is wanted ──> look: one page, sorted by the node
//!       ^────────────── draw <────── state <──────────────────┘
//! ```
//!
//! Without a terminal, or with `--once`, one look is printed by `plain`.
#![allow(clippy::disallowed_methods, reason = "one look waits, so that rates are of a known time")]

mod draw;
mod look;
mod plain;
mod screen;
mod state;
mod view;

use std::io::IsTerminal as _;
use std::time::Duration;

use self::look::{Look, ROWS_MAX, look};
use self::state::State;
use self::view::View;
use super::failure::{Failure, remark};
use super::login;
use super::resource::Vhost;
use super::session::{Session, say, say_json};

pub(crate) const EXAMPLES: &str = "\
  millrace top
  millrace top connections --sort consumers
The fullest queues of one vhost, once, as plain text or JSON:
  millrace top --once -p shop --limit 10
  millrace top --json | jq '.queues[0]'
Keys: q quits. Tab goes from queues to connections and back. Left and right (or < and >) choose the column to sort by, r
reverses. / types a filter for names; Enter keeps it, Esc takes it back. p or the space bar pauses. PgUp, PgDn, Home and
End turn pages. Numbers begin with the largest, texts with A.
The node sorts and filters, and gives no more rows than fit on the screen.";

/// Between the two looks of --once: a queue's rates are those since somebody looked last, and need a second.
const RATES: Duration = Duration::from_millis(1100);

/// What `millrace top` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) login: login::Options,
    #[command(flatten)]
    vhost: Vhost,
    /// What is shown first
    #[arg(value_enum, default_value_t = View::Queues)]
    view: View,
    /// Sort by this column. A wrong name lists those that there are
    #[arg(long, value_name = "COLUMN")]
    sort: Option<String>,
    /// Sort in reverse
    #[arg(long)]
    reverse: bool,
    /// Show only those with this text in their name; capitals do not matter
    #[arg(long, value_name = "TEXT")]
    name: Option<String>,
    /// Look again at this interval
    #[arg(long, value_name = "TIME", value_parser = service::duration, default_value = "2s")]
    every: Duration,
    /// Print one look as plain text; so does a standard output that is no terminal
    #[arg(long)]
    once: bool,
    /// With --once or --json: show this many at most, up to 500
    #[arg(long, value_name = "COUNT", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=ROWS_MAX as i64))]
    limit: u16,
}

pub(crate) async fn run(session: &mut Session, args: Args) -> Result<(), Failure> {
    let Args { vhost, view, sort, reverse, name, every, once, limit, .. } = args;
    let mut state = State::new(view, vhost.vhost, name.unwrap_or_default(), usize::from(limit));
    state.sort_by(sort.map_or(Ok(0), |key| find(view, &key))?, reverse);
    state.has_colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    if !once && !session.is_json && std::io::stdout().is_terminal() {
        return screen::run(session, state, every.max(Duration::from_millis(100))).await;
    }
    let found = with_rates(session, &state).await?;
    if session.is_json {
        return say_json(&plain::json(&found));
    }
    say(&plain::text(&found))?;
    match found.matching.saturating_sub(found.items.len()) {
        0 => {}
        rest => remark(&format!("{rest} more {} are not shown", view.name())),
    }
    Ok(())
}

/// One look, after another that the rates of its queues are counted from.
async fn with_rates(session: &mut Session, state: &State) -> Result<Look, Failure> {
    let wish = state.wish();
    let first = look(session, &wish).await?;
    if wish.view == View::Connections {
        return Ok(first);
    }
    tokio::time::sleep(RATES).await;
    look(session, &wish).await
}

fn find(view: View, key: &str) -> Result<usize, Failure> {
    view.sorts().iter().position(|sort| *sort == key).ok_or_else(|| {
        Failure::Usage(format!(
            "{} cannot be sorted by `{key}`; choose from {}",
            view.name(),
            view.sorts().join(", ")
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_column_is_told_with_those_that_there_are() {
        assert_eq!(find(View::Queues, "publish_rate"), Ok(2));
        let Err(Failure::Usage(told)) = find(View::Queues, "channels") else {
            panic!("it is none")
        };
        assert!(told.contains("`channels`") && told.contains("messages_ready, "), "{told}");
    }
}
