//! The terminal of `millrace top`: keys in, screens out, and looks between. It drives [`State`] and decides nothing.
#![allow(clippy::disallowed_methods, reason = "a shell: a thread that waits for keys, and a clock")]

use std::io;
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::terminal;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::draw;
use super::look::look;
use super::state::{Effect, Key, State};
use crate::cmd::admin::failure::Failure;
use crate::cmd::admin::session::Session;

/// Keys that wait to be heard.
const KEYS_MAX: usize = 64;

/// Shows the broker until somebody quits.
pub(super) async fn run(
    session: &mut Session,
    mut state: State,
    every: Duration,
) -> Result<(), Failure> {
    let (_, lines) = terminal::size().map_err(no_terminal)?;
    state.resize(draw::rows_on(lines));
    // Before the screen is taken: who may not look hears it as from every other command.
    let wish = state.wish();
    let first = look(session, &wish).await?;
    state.see(&wish, Ok(first));
    let mut ears = Ears::open().map_err(no_terminal)?;
    let mut screen = Screen::open().map_err(no_terminal)?;
    let mut due = Instant::now() + every;
    let mut is_stale = false;
    loop {
        screen.draw(&state).map_err(no_terminal)?;
        let effect = tokio::select! {
            biased;
            heard = ears.next() => react(&mut state, heard),
            () = tokio::time::sleep_until(due), if is_stale || !state.is_paused() => Effect::Look,
        };
        match effect {
            Effect::Quit => return Ok(()),
            Effect::Draw => continue,
            Effect::Look => {}
        }
        let wish = state.wish();
        let looked = {
            let mut looking = std::pin::pin!(look(session, &wish));
            loop {
                // Keys are heard meanwhile: a node may be slow.
                tokio::select! {
                    biased;
                    heard = ears.next() => {
                        if react(&mut state, heard) == Effect::Quit {
                            return Ok(());
                        }
                        screen.draw(&state).map_err(no_terminal)?;
                    }
                    looked = &mut looking => break looked,
                }
            }
        };
        is_stale = looked.is_ok() && state.wish() != wish;
        state.see(&wish, looked.map_err(|failure| failure.to_string()));
        due = Instant::now() + if is_stale { Duration::ZERO } else { every };
    }
}

fn no_terminal(error: io::Error) -> Failure {
    Failure::Usage(format!("the terminal cannot be used: {error}. --once needs none"))
}

fn react(state: &mut State, heard: Heard) -> Effect {
    match heard {
        Heard::Key(key) => state.press(key),
        Heard::Lines(lines) => state.resize(draw::rows_on(lines)),
        Heard::Gone => Effect::Quit,
    }
}

/// What happens at the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    Key(Key),
    /// It has so many lines now.
    Lines(u16),
    /// The terminal is gone, or the process is told to end.
    Gone,
}

/// What an event means. `None`: nothing.
fn meaning(event: &Event) -> Option<Heard> {
    match event {
        Event::Resize(_, lines) => Some(Heard::Lines(*lines)),
        Event::Key(key) => key_of(key).map(Heard::Key),
        Event::FocusGained | Event::FocusLost | Event::Mouse(_) | Event::Paste(_) => None,
    }
}

fn key_of(pressed: &KeyEvent) -> Option<Key> {
    if pressed.kind == KeyEventKind::Release {
        return None;
    }
    let is_control = pressed.modifiers.contains(KeyModifiers::CONTROL);
    Some(match pressed.code {
        KeyCode::Char('c') if is_control => Key::Interrupt,
        KeyCode::Char(letter) if !is_control => Key::Letter(letter),
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Escape,
        KeyCode::Backspace => Key::Backspace,
        KeyCode::Tab | KeyCode::BackTab => Key::Tab,
        KeyCode::Left => Key::Left,
        KeyCode::Right => Key::Right,
        KeyCode::PageUp | KeyCode::Up => Key::PageUp,
        KeyCode::PageDown | KeyCode::Down => Key::PageDown,
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        _ => return None,
    })
}

/// Hears keys and signals.
struct Ears {
    keys: mpsc::Receiver<Heard>,
    terminate: Signal,
    hangup: Signal,
}

impl Ears {
    fn open() -> io::Result<Self> {
        let (tell, keys) = mpsc::channel(KEYS_MAX);
        // It waits for keys until the process ends.
        std::thread::Builder::new().name("keys".to_owned()).spawn(move || {
            loop {
                let heard = match event::read() {
                    Ok(event) => meaning(&event),
                    Err(_) => Some(Heard::Gone),
                };
                let Some(heard) = heard else { continue };
                if tell.blocking_send(heard).is_err() || heard == Heard::Gone {
                    return;
                }
            }
        })?;
        let terminate = signal(SignalKind::terminate())?;
        Ok(Self { keys, terminate, hangup: signal(SignalKind::hangup())? })
    }

    async fn next(&mut self) -> Heard {
        tokio::select! {
            heard = self.keys.recv() => heard.unwrap_or(Heard::Gone),
            _ = self.terminate.recv() => Heard::Gone,
            _ = self.hangup.recv() => Heard::Gone,
        }
    }
}

/// The terminal, which is given back as it was.
struct Screen(DefaultTerminal);

impl Screen {
    fn open() -> io::Result<Self> {
        let taken = ratatui::try_init().map(Self);
        // A half of it may be done.
        taken.inspect_err(|_| _ = ratatui::try_restore())
    }

    fn draw(&mut self, state: &State) -> io::Result<()> {
        self.0.draw(|frame| draw::draw(frame, state)).map(|_| ())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Nobody is left to tell if the terminal is gone.
        let _ = ratatui::try_restore();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pressed(code: KeyCode, modifiers: KeyModifiers) -> Option<Heard> {
        meaning(&Event::Key(KeyEvent::new(code, modifiers)))
    }

    #[test]
    fn keys_mean_what_they_say() {
        let key = |key| Some(Heard::Key(key));
        let none = KeyModifiers::NONE;
        assert_eq!(pressed(KeyCode::Char('q'), none), key(Key::Letter('q')));
        assert_eq!(pressed(KeyCode::Char('Q'), KeyModifiers::SHIFT), key(Key::Letter('Q')));
        assert_eq!(pressed(KeyCode::Char('c'), KeyModifiers::CONTROL), key(Key::Interrupt));
        assert_eq!(
            pressed(KeyCode::Char('z'), KeyModifiers::CONTROL),
            None,
            "no letter of a filter"
        );
        assert_eq!(pressed(KeyCode::Down, none), key(Key::PageDown));
        assert_eq!(pressed(KeyCode::F(1), none), None);
        assert_eq!(meaning(&Event::Resize(80, 24)), Some(Heard::Lines(24)));
        assert_eq!(meaning(&Event::FocusLost), None);
        let mut release = KeyEvent::new(KeyCode::Char('q'), none);
        release.kind = KeyEventKind::Release;
        assert_eq!(meaning(&Event::Key(release)), None);
    }
}
