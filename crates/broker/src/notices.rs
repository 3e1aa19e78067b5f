//! Which log lines about connections are written: the first ones, and from then on a few per second with the
//! number of those that were not.

use std::borrow::Cow;
use std::time::Duration;

use crate::limits;
use crate::pace::Pace;

/// Lines of one kind.
#[derive(Clone, Copy, Debug)]
struct Lines {
    pace: Pace,
    hidden: u64,
}

impl Lines {
    fn new() -> Self {
        let (rate, burst) = (limits::LOG_LINES_PER_SECOND, limits::LOG_LINES_AT_ONCE);
        Self { pace: Pace::new(rate, burst, Duration::ZERO), hidden: 0 }
    }

    fn write(&mut self, now: Duration) -> Option<u64> {
        if self.pace.wait(now) > Duration::ZERO {
            self.hidden += 1;
            return None;
        }
        self.pace.take(now);
        Some(std::mem::take(&mut self.hidden))
    }
}

/// What a line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Connected,
    LoginRefused,
    LoginUnjudged,
    MadeWay,
    TurnedAway,
    AcceptFailed,
    NoTls,
}

/// All kinds.
#[derive(Debug)]
pub(crate) struct Notices([Lines; 7]);

impl Default for Notices {
    fn default() -> Self {
        Self([Lines::new(); 7])
    }
}

impl Notices {
    /// Whether a line of that kind is written now: the number of lines before it that were not. Time counts from
    /// any moment on.
    pub(crate) fn write(&mut self, kind: Kind, now: Duration) -> Option<u64> {
        let at = match kind {
            Kind::Connected => 0,
            Kind::LoginRefused => 1,
            Kind::LoginUnjudged => 2,
            Kind::MadeWay => 3,
            Kind::TurnedAway => 4,
            Kind::AcceptFailed => 5,
            Kind::NoTls => 6,
        };
        self.0[at].write(now)
    }
}

/// Letters of a name that a log line has. What is longer is hardly a name.
const NAME_LETTERS_MAX: usize = 128;
/// How each JSON Web Token begins: `{"` in base64.
const TOKEN_BEGINS: &str = "eyJ";

/// A user's name as a log line may have it. Some clients send a token where the name belongs, and whoever reads the log
/// could log in with it.
pub(crate) fn shown_user(user: &str) -> Cow<'_, str> {
    let is_long = user.chars().nth(NAME_LETTERS_MAX).is_some();
    if !is_long && !user.starts_with(TOKEN_BEGINS) {
        return Cow::Borrowed(user);
    }
    Cow::Owned(format!("(not shown: {} bytes, perhaps a token)", user.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_in_the_place_of_a_name_is_not_shown() {
        for name in ["guest", "", "a.b.c", "eve", &"x".repeat(128)] {
            assert_eq!(shown_user(name), name);
        }
        for secret in ["eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.c2lnbmVk", &"x".repeat(129)] {
            let shown = shown_user(secret);
            assert!(!shown.contains("eyJ") && !shown.contains("xx"), "{shown}");
        }
    }

    #[test]
    fn a_storm_writes_a_few_lines_and_counts_the_others() {
        let mut notices = Notices::default();
        let now = Duration::from_secs(9);
        let written = (0..1000).filter(|_| notices.write(Kind::LoginRefused, now).is_some());
        assert_eq!(written.count(), limits::LOG_LINES_AT_ONCE as usize);
        assert_eq!(notices.write(Kind::Connected, now), Some(0), "kinds do not hide each other");
        let later = now + Duration::from_secs(1);
        let hidden = 1000 - u64::from(limits::LOG_LINES_AT_ONCE);
        assert_eq!(notices.write(Kind::LoginRefused, later), Some(hidden));
        assert_eq!(notices.write(Kind::LoginRefused, later), Some(0));
    }
}
