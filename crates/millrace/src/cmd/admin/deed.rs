//! What changes something: counted and named before it is done, and told afterwards.

use std::io::{self, IsTerminal as _, Write as _};

use indicatif::ProgressBar;
use serde_json::{Value, json};

use super::api::Ask;
use super::failure::{Failure, remark};
use super::session::{Session, say, say_json};
use crate::table::shown;

/// Names that are shown before many things are destroyed.
const NAMES_SHOWN: usize = 10;

/// How careful a command that destroys is to be.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub(crate) struct Care {
    /// Say what would be done, with counts, and do nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask before doing it to all that a filter finds
    #[arg(long, short = 'y')]
    pub(crate) yes: bool,
}

/// Something that is to be destroyed.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) ask: Ask,
    /// For people: `queue orders of vhost /`.
    pub(crate) label: String,
    /// For people, what goes with it: `12 messages, 1 consumer`. Empty: nothing.
    pub(crate) loss: String,
    /// For programs: its name, and what goes with it.
    pub(crate) facts: Value,
}

/// What is to be done to targets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deed {
    /// As JSON has it: `delete`.
    pub(crate) action: &'static str,
    /// As people read it before and after: `delete`, `deleted`.
    pub(crate) words: (&'static str, &'static str),
    /// What one of the targets is, and several are.
    pub(crate) kind: (&'static str, &'static str),
    /// They were found, not named: somebody has to say yes.
    pub(crate) is_found: bool,
}

impl Deed {
    fn counted(&self, count: usize) -> String {
        let (one, many) = self.kind;
        format!("{count} {}", if count == 1 { one } else { many })
    }

    /// Says what will be done, does it, and tells that it is done.
    pub(crate) async fn run(
        self,
        session: &mut Session,
        targets: Vec<Target>,
        care: Care,
    ) -> Result<(), Failure> {
        match self.act(session, &targets, care, |_, _| Ok(())).await? {
            Some(_) => self.tell(session, &targets),
            None => Ok(()),
        }
    }

    /// Says what will be done, and does it. Each answer is judged when it is there: what follows is not done if it is
    /// wrong. `None`: nothing was to be done, and that is told.
    pub(crate) async fn act(
        &self,
        session: &mut Session,
        targets: &[Target],
        care: Care,
        judge: impl Fn(&Target, &Value) -> Result<(), Failure>,
    ) -> Result<Option<Vec<Value>>, Failure> {
        let before = self.before(targets);
        if care.dry_run || targets.is_empty() {
            match (session.is_json, care.dry_run) {
                (true, is_dry) => say_json(&self.json(targets, is_dry))?,
                (false, true) => say(&format!("{before}\nnothing was done (--dry-run)"))?,
                (false, false) => say(&before)?,
            }
            return Ok(None);
        }
        remark(&before);
        if self.is_found && !care.yes {
            self.confirm()?;
        }
        let bar = progress(targets.len());
        let mut answers = Vec::with_capacity(targets.len());
        for target in targets {
            let worked = session.api.done(&target.ask).await.map(|answer| answer.body);
            match worked.and_then(|answer| judge(target, &answer).map(|()| answer)) {
                Ok(answer) => answers.push(answer),
                Err(failure) => {
                    bar.finish_and_clear();
                    if !answers.is_empty() {
                        let ((_, past), all) = (self.words, self.counted(targets.len()));
                        remark(&format!("{past} {} of {all} before that:", answers.len()));
                    }
                    return Err(failure);
                }
            }
            bar.inc(1);
        }
        bar.finish_and_clear();
        Ok(Some(answers))
    }

    /// Tells that it is done.
    pub(crate) fn tell(&self, session: &Session, targets: &[Target]) -> Result<(), Failure> {
        match session.is_json {
            true => say_json(&self.json(targets, false)),
            false => say(&format!("{} {}", self.words.1, self.named(targets))),
        }
    }

    /// The one target by its name, or how many there are.
    pub(crate) fn named(&self, targets: &[Target]) -> String {
        match targets {
            [one] => one.label.clone(),
            many => self.counted(many.len()),
        }
    }

    /// What will be done, for people.
    fn before(&self, targets: &[Target]) -> String {
        let (verb, _) = self.words;
        let with = |loss: &str| if loss.is_empty() { String::new() } else { format!(": {loss}") };
        if let [one] = targets {
            return format!("{verb} {}{}", one.label, with(&one.loss));
        }
        let mut text = format!("{verb} {}", self.counted(targets.len()));
        for target in targets.iter().take(NAMES_SHOWN) {
            text.push_str(&format!("\n  {}{}", target.label, with(&target.loss)));
        }
        if targets.len() > NAMES_SHOWN {
            text.push_str(&format!("\n  and {} more", targets.len() - NAMES_SHOWN));
        }
        text
    }

    pub(crate) fn json(&self, targets: &[Target], is_dry: bool) -> Value {
        let facts: Vec<Value> = targets.iter().map(|target| target.facts.clone()).collect();
        json!({
            "action": self.action,
            "kind": self.kind.0,
            "dry_run": is_dry,
            "count": facts.len(),
            "items": facts,
        })
    }

    fn confirm(&self) -> Result<(), Failure> {
        let (verb, _) = self.words;
        if !io::stdin().is_terminal() {
            return Err(Failure::Usage(format!(
                "a filter found them, and nobody is there to ask: give --yes to {verb} them, or --dry-run to look"
            )));
        }
        let _ = write!(io::stderr(), "Go on? [y/N] ");
        let mut said = String::new();
        let _ = io::stdin().read_line(&mut said);
        match said.trim() {
            "y" | "Y" | "yes" => Ok(()),
            _ => Err(Failure::Usage("stopped: nothing was done".to_owned())),
        }
    }
}

/// With rate and estimated end, on a terminal, where there is more than a moment's work.
fn progress(count: usize) -> ProgressBar {
    if count < 2 {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(u64::try_from(count).unwrap_or(u64::MAX));
    let style =
        indicatif::ProgressStyle::with_template("{pos}/{len} {per_sec} ETA {eta} {wide_bar}");
    style.map_or(bar.clone(), |style| bar.with_style(style))
}

/// A thing in a vhost, as people read it.
pub(crate) fn in_vhost(kind: &str, name: &str, vhost: &str) -> String {
    format!("{kind} {} of vhost {}", shown(name), shown(vhost))
}

/// Tells that something was made or set.
pub(crate) fn told(
    session: &Session,
    action: &str,
    past: &str,
    label: &str,
    facts: Value,
) -> Result<(), Failure> {
    if !session.is_json {
        return say(&format!("{past} {label}"));
    }
    let mut told = json!({ "action": action });
    if let (Value::Object(told), Value::Object(facts)) = (&mut told, facts) {
        told.extend(facts);
    }
    say_json(&told)
}

#[cfg(test)]
mod tests {
    use super::super::path::Path;
    use super::*;

    const DELETE: Deed = Deed {
        action: "delete",
        words: ("delete", "deleted"),
        kind: ("queue", "queues"),
        is_found: true,
    };

    fn target(name: &str) -> Target {
        Target {
            ask: Ask::delete(Path::of(&["queues", "/", name]), name),
            label: in_vhost("queue", name, "/"),
            loss: "3 messages".to_owned(),
            facts: json!({ "name": name, "messages": 3 }),
        }
    }

    #[test]
    fn what_goes_is_counted_and_named_before() {
        let one = DELETE.before(&[target("a\u{1b}b")]);
        assert_eq!(one, "delete queue a\\u{1b}b of vhost /: 3 messages");
        let many: Vec<Target> = (0..12).map(|number| target(&number.to_string())).collect();
        let told = DELETE.before(&many);
        assert!(told.starts_with("delete 12 queues\n  queue 0 of vhost /: 3 messages"), "{told}");
        assert!(told.ends_with("\n  and 2 more"), "{told}");
        assert_eq!(DELETE.before(&[]), "delete 0 queues");
        let json = DELETE.json(&many[..1], true);
        assert_eq!((&json["count"], &json["dry_run"]), (&json!(1), &json!(true)));
        assert_eq!(json["items"][0], json!({ "name": "0", "messages": 3 }));
    }
}
