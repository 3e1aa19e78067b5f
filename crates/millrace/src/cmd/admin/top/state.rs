//! What `millrace top` shows, and what keys do to it. A core: it is told keys and looks, and waits for nothing.

use super::look::{Look, Wish};
use super::view::View;

/// Letters of a filter.
const FILTER_LETTERS_MAX: usize = 100;

/// A key, as far as one means something here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Letter(char),
    Enter,
    Escape,
    Backspace,
    Tab,
    Left,
    Right,
    PageUp,
    PageDown,
    Home,
    End,
    /// Ctrl-C.
    Interrupt,
}

/// What is to be done about a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// What is there is drawn.
    Draw,
    /// Another page is to be asked for.
    Look,
    Quit,
}

/// How a view is sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Order {
    /// Of the view's sorts.
    sort: usize,
    is_reversed: bool,
}

/// A filter that is being typed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Typing {
    /// What holds again after Escape.
    before: String,
}

/// What is shown.
#[derive(Clone, Debug)]
pub(super) struct State {
    view: View,
    vhost: Option<String>,
    orders: [Order; 2],
    filter: String,
    typing: Option<Typing>,
    is_paused: bool,
    page: usize,
    /// Rows that the screen has room for.
    rows: usize,
    look: Option<Look>,
    /// Why the last look failed.
    failure: Option<String>,
    /// Whether colours are wanted.
    pub(super) has_colours: bool,
}

impl State {
    pub(super) fn new(view: View, vhost: Option<String>, filter: String, rows: usize) -> Self {
        Self {
            view,
            vhost,
            orders: [Order::default(); 2],
            filter,
            typing: None,
            is_paused: false,
            page: 1,
            rows,
            look: None,
            failure: None,
            has_colours: true,
        }
    }

    /// Sorts the view that is shown by one of its sorts.
    pub(super) fn sort_by(&mut self, sort: usize, is_reversed: bool) {
        *self.order_mut() = Order { sort, is_reversed };
    }

    /// A key was pressed.
    pub(super) fn press(&mut self, key: Key) -> Effect {
        if key == Key::Interrupt {
            return Effect::Quit;
        }
        match self.typing.take() {
            Some(typing) => self.type_on(typing, key),
            None => self.command(key),
        }
    }

    /// A filter is being typed: it holds at once, letter by letter.
    fn type_on(&mut self, typing: Typing, key: Key) -> Effect {
        match key {
            Key::Enter | Key::Tab => return Effect::Draw,
            Key::Escape => self.filter = typing.before,
            Key::Backspace => {
                self.filter.pop();
                self.typing = Some(typing);
            }
            Key::Letter(letter) => {
                if self.filter.chars().count() < FILTER_LETTERS_MAX {
                    self.filter.push(letter);
                }
                self.typing = Some(typing);
            }
            Key::Left | Key::Right | Key::PageUp | Key::PageDown | Key::Home | Key::End => {
                self.typing = Some(typing);
                return Effect::Draw;
            }
            Key::Interrupt => return Effect::Quit,
        }
        self.turn_to(1)
    }

    fn command(&mut self, key: Key) -> Effect {
        match key {
            Key::Letter('q') | Key::Escape | Key::Interrupt => Effect::Quit,
            Key::Tab => {
                self.view = self.view.other();
                self.turn_to(1)
            }
            Key::Left | Key::Letter('<') => self.move_sort(-1),
            Key::Right | Key::Letter('>') => self.move_sort(1),
            Key::Letter('r') => {
                let order = self.order_mut();
                order.is_reversed = !order.is_reversed;
                self.turn_to(1)
            }
            Key::Letter('/') => {
                self.typing = Some(Typing { before: self.filter.clone() });
                Effect::Draw
            }
            Key::Letter('p' | ' ') => {
                self.is_paused = !self.is_paused;
                if self.is_paused { Effect::Draw } else { Effect::Look }
            }
            Key::PageUp => self.turn_to(self.page.saturating_sub(1)),
            Key::PageDown => self.turn_to(self.page + 1),
            Key::Home => self.turn_to(1),
            Key::End => self.turn_to(usize::MAX),
            Key::Enter => Effect::Look,
            Key::Backspace | Key::Letter(_) => Effect::Draw,
        }
    }

    fn move_sort(&mut self, by: isize) -> Effect {
        let count = self.view.sorts().len();
        let order = self.order_mut();
        let sort = order.sort.checked_add_signed(by).unwrap_or(count - 1);
        *order = Order { sort: if sort < count { sort } else { 0 }, is_reversed: false };
        self.turn_to(1)
    }

    /// The page, or the next one that there is.
    fn turn_to(&mut self, page: usize) -> Effect {
        let last = self.look.as_ref().map_or(1, |look| look.page_count);
        self.page = page.clamp(1, last.max(1));
        Effect::Look
    }

    /// The screen has room for so many rows.
    pub(super) fn resize(&mut self, rows: usize) -> Effect {
        if rows == self.rows {
            return Effect::Draw;
        }
        self.rows = rows;
        self.turn_to(1)
    }

    /// A look has ended. One that was for something else than is shown now is dropped.
    pub(super) fn see(&mut self, wish: &Wish, looked: Result<Look, String>) {
        match looked {
            Ok(look) if *wish == self.wish() => {
                self.failure = None;
                self.page = look.page;
                self.look = Some(look);
            }
            Ok(_) => self.failure = None,
            Err(why) => self.failure = Some(why),
        }
    }

    /// Which rows are to be asked for.
    pub(super) fn wish(&self) -> Wish {
        let Order { sort, is_reversed } = self.order();
        Wish {
            view: self.view,
            vhost: self.vhost.clone(),
            sort,
            is_reversed,
            filter: self.filter.clone(),
            page: self.page,
            rows: self.rows,
        }
    }

    fn order(&self) -> Order {
        self.orders[self.view as usize]
    }

    fn order_mut(&mut self) -> &mut Order {
        &mut self.orders[self.view as usize]
    }

    pub(super) fn view(&self) -> View {
        self.view
    }

    pub(super) fn filter(&self) -> &str {
        &self.filter
    }

    pub(super) fn is_typing(&self) -> bool {
        self.typing.is_some()
    }

    pub(super) fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// What was seen last, perhaps of the other view.
    pub(super) fn look(&self) -> Option<&Look> {
        self.look.as_ref()
    }

    /// What was seen last of this view.
    pub(super) fn look_of_view(&self) -> Option<&Look> {
        self.look.as_ref().filter(|look| look.view == self.view)
    }

    pub(super) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::super::look::Totals;
    use super::*;

    fn state() -> State {
        let mut state = State::new(View::Queues, None, String::new(), 10);
        let (wish, look) = (state.wish(), looked(View::Queues, 1, 4));
        state.see(&wish, Ok(look));
        state
    }

    fn looked(view: View, page: usize, page_count: usize) -> Look {
        let items = Vec::new();
        Look { view, totals: Totals::default(), items, matching: 35, page, page_count }
    }

    fn press(state: &mut State, keys: &[Key]) -> Effect {
        keys.iter().map(|key| state.press(*key)).last().unwrap()
    }

    fn letters(text: &str) -> Vec<Key> {
        text.chars().map(Key::Letter).collect()
    }

    #[test]
    fn q_escape_and_ctrl_c_end_it_and_ctrl_c_also_while_a_filter_is_typed() {
        for key in [Key::Letter('q'), Key::Escape, Key::Interrupt] {
            assert_eq!(state().press(key), Effect::Quit, "{key:?}");
        }
        let mut state = state();
        assert_eq!(press(&mut state, &letters("/q")), Effect::Look, "a letter of the filter");
        assert_eq!(state.press(Key::Interrupt), Effect::Quit);
    }

    #[test]
    fn a_filter_holds_letter_by_letter_and_escape_takes_it_back() {
        let mut state = state();
        assert_eq!(press(&mut state, &letters("/or")), Effect::Look);
        assert_eq!((state.wish().filter.as_str(), state.is_typing()), ("or", true));
        press(&mut state, &[Key::Backspace]);
        assert_eq!(state.press(Key::Enter), Effect::Draw);
        assert_eq!((state.filter(), state.is_typing()), ("o", false));
        press(&mut state, &letters("/xyz"));
        assert_eq!(state.filter(), "oxyz");
        assert_eq!(state.press(Key::Escape), Effect::Look);
        assert_eq!((state.filter(), state.is_typing()), ("o", false));
        press(&mut state, &letters(&format!("/{}", "x".repeat(500))));
        assert_eq!(state.filter().len(), FILTER_LETTERS_MAX);
    }

    #[test]
    fn each_view_keeps_its_order_and_another_column_begins_anew() {
        let mut state = state();
        assert_eq!(press(&mut state, &[Key::Right, Key::Letter('r')]), Effect::Look);
        assert_eq!((state.wish().sort, state.wish().is_reversed), (1, true));
        assert_eq!(state.press(Key::Tab), Effect::Look);
        assert_eq!((state.wish().view, state.wish().sort), (View::Connections, 0));
        assert_eq!(state.look_of_view(), None, "rows of queues are no connections");
        assert!(state.look().is_some(), "the totals stay");
        press(&mut state, &[Key::Left]);
        assert_eq!(state.wish().sort, View::Connections.sorts().len() - 1, "it goes round");
        press(&mut state, &[Key::Tab]);
        assert_eq!((state.wish().sort, state.wish().is_reversed), (1, true));
        press(&mut state, &letters("<"));
        assert_eq!((state.wish().sort, state.wish().is_reversed), (0, false));
    }

    #[test]
    fn a_pause_stops_looks_and_its_end_begins_with_one() {
        let mut state = state();
        assert_eq!(state.press(Key::Letter(' ')), Effect::Draw);
        assert!(state.is_paused());
        assert_eq!(state.press(Key::Right), Effect::Look, "whoever asks for something gets it");
        assert_eq!(state.press(Key::Letter('p')), Effect::Look);
        assert!(!state.is_paused());
    }

    #[test]
    fn pages_end_where_the_list_does() {
        let mut state = state();
        let page = |state: &State| state.wish().page;
        press(&mut state, &[Key::PageUp]);
        assert_eq!(page(&state), 1);
        press(&mut state, &[Key::PageDown, Key::PageDown]);
        assert_eq!(page(&state), 3);
        press(&mut state, &[Key::End, Key::PageDown]);
        assert_eq!(page(&state), 4);
        let wish = state.wish();
        state.see(&wish, Ok(looked(View::Queues, 1, 1)));
        assert_eq!(page(&state), 1, "what was there is gone, and the node gave the first page");
        assert_eq!(state.resize(10), Effect::Draw);
        assert_eq!(state.resize(12), Effect::Look);
        assert_eq!(state.wish().rows, 12);
    }

    #[test]
    fn a_look_for_something_else_is_not_shown_and_a_failure_keeps_what_was_seen() {
        let mut state = state();
        let before = state.wish();
        press(&mut state, &[Key::Tab]);
        state.see(&before, Ok(looked(View::Queues, 1, 4)));
        assert_eq!(state.look_of_view(), None);
        let wish = state.wish();
        state.see(&wish, Ok(looked(View::Connections, 1, 1)));
        state.see(&wish, Err("no answer".to_owned()));
        assert_eq!((state.look().is_some(), state.failure()), (true, Some("no answer")));
        state.see(&wish, Ok(looked(View::Connections, 1, 1)));
        assert_eq!(state.failure(), None);
    }
}
