//! The screen of `millrace top`: a pure function of its state and its size.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table};
use serde_json::Value;

use super::look::{Look, Totals};
use super::state::State;
use crate::cmd::admin::column::Column;
use crate::cmd::admin::problems::Severity;
use crate::table::{clean, or_dash, shown};

/// Lines above the table, with the empty one; the heads of columns; the line below.
const HEAD_LINES: u16 = 5;
const COLUMN_HEADS: u16 = 1;
const FOOT_LINES: u16 = 1;
/// Between two columns.
const GAP: u16 = 2;
/// Letters of the first column that are shown before others are.
const NAME_MIN: u16 = 16;

/// Rows of the table on a screen of so many lines: at least one is asked for.
pub(super) fn rows_on(lines: u16) -> usize {
    usize::from(lines.saturating_sub(HEAD_LINES + COLUMN_HEADS + FOOT_LINES)).max(1)
}

/// Draws what there is.
pub(super) fn draw(frame: &mut Frame<'_>, state: &State) {
    let paint = Paint { has_colours: state.has_colours };
    let lines =
        [Constraint::Length(HEAD_LINES), Constraint::Fill(1), Constraint::Length(FOOT_LINES)];
    let [head, body, foot] = Layout::vertical(lines).areas(frame.area());
    frame.render_widget(Paragraph::new(head_lines(state, paint)), head);
    match state.look_of_view() {
        Some(look) if look.items.is_empty() => {
            let words = format!("no {}{}", look.view.name(), filtered(state));
            frame.render_widget(Paragraph::new(words), body);
        }
        Some(look) => frame.render_widget(table(look, state, paint, body), body),
        None => frame.render_widget(Paragraph::new("looking"), body),
    }
    frame.render_widget(Paragraph::new(foot_line(state, paint)), foot);
}

/// What is told by colours is told by words, too: some terminals have none.
#[derive(Clone, Copy)]
struct Paint {
    has_colours: bool,
}

impl Paint {
    fn of(self, colour: Color) -> Style {
        if self.has_colours { Style::new().fg(colour) } else { Style::new() }
    }
}

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const TURNED: Style = Style::new().add_modifier(Modifier::REVERSED);

fn head_lines(state: &State, paint: Paint) -> Vec<Line<'static>> {
    let Some(Look { totals, .. }) = state.look() else { return vec![Line::from("millrace top")] };
    let name = |name: &Option<String>| shown(name.as_deref().unwrap_or("-"));
    let nodes =
        totals.nodes.map_or(String::new(), |(up, all)| format!("   nodes {up} of {all} up"));
    let mut first = vec![
        Span::styled(format!("millrace {}", name(&totals.version)), BOLD),
        Span::raw(format!(
            "   cluster {}{nodes}   seen from {}",
            name(&totals.cluster),
            name(&totals.node)
        )),
    ];
    if state.is_paused() {
        first.push(Span::styled("   PAUSED", BOLD.patch(paint.of(Color::Yellow))));
    }
    let last = match state.failure() {
        Some(why) => Line::styled(
            format!("what is below is old: {}", clean(why)),
            BOLD.patch(paint.of(Color::Red)),
        ),
        None => verdict(totals, paint),
    };
    vec![Line::from(first), Line::from(flow(totals)), Line::from(counts(totals)), last]
}

pub(super) fn per_second(rate: Option<f64>) -> String {
    rate.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.1}/s"))
}

fn flow(totals: &Totals) -> String {
    format!(
        "messages {} ready, {} unacked   in {}   out {}   acked {}",
        or_dash(totals.ready),
        or_dash(totals.unacked),
        per_second(totals.publish_rate),
        per_second(totals.deliver_rate),
        per_second(totals.ack_rate),
    )
}

fn counts(totals: &Totals) -> String {
    format!(
        "queues {}   connections {}   channels {}   consumers {}",
        or_dash(totals.queues),
        or_dash(totals.connections),
        or_dash(totals.channels),
        or_dash(totals.consumers),
    )
}

/// The worst problem, and how many there are beside it.
fn verdict(totals: &Totals, paint: Paint) -> Line<'static> {
    let Some(worst) = totals.problems.first() else {
        return Line::styled("ok: nothing needs you", paint.of(Color::Green));
    };
    let colour = match worst.severity {
        Severity::Warning => Color::Yellow,
        Severity::Critical => Color::Red,
    };
    let more = match totals.problems.len() - 1 {
        0 => String::new(),
        count => format!(" (and {count} more: millrace status)"),
    };
    Line::from(vec![
        Span::styled(worst.severity.word(), BOLD.patch(paint.of(colour))),
        Span::raw(format!(": {}{more}", worst.what)),
    ])
}

fn filtered(state: &State) -> String {
    match state.filter() {
        "" => String::new(),
        filter => format!(" with \"{}\" in their name", clean(filter)),
    }
}

fn table(look: &Look, state: &State, paint: Paint, area: Rect) -> Table<'static> {
    let wish = state.wish();
    let sorted_by = look.view.sorted_by(wish.sort).key;
    let arrow = if wish.is_descending() { "▼" } else { "▲" };
    let head = |column: &Column| match column.key == sorted_by {
        true => format!("{}{arrow}", column.head),
        false => column.head.to_owned(),
    };
    let columns = look.view.columns();
    let cells: Vec<Vec<String>> = look
        .items
        .iter()
        .map(|item: &Value| columns.iter().map(|column| column.cell(item)).collect())
        .collect();
    let width = |nth: usize| {
        let cells = cells.iter().map(|row| Span::raw(&row[nth]).width());
        let widest = cells.chain([Span::raw(head(&columns[nth])).width()]).max().unwrap_or(0);
        u16::try_from(widest).unwrap_or(u16::MAX)
    };
    let widths: Vec<u16> = (0..columns.len()).map(width).collect();
    let count = fitting(&widths, area.width);
    let align = |column: &Column, text: String| {
        let line = Line::from(text);
        if column.is_number() { line.right_aligned() } else { line }
    };
    let heads = columns[..count].iter().map(|column| {
        let style = if column.key == sorted_by { TURNED } else { BOLD };
        Cell::from(align(column, head(column))).style(style)
    });
    let rows = cells.into_iter().map(|row| {
        let cells = columns.iter().zip(row).take(count);
        Row::new(cells.map(|(column, cell)| Cell::from(align(column, cell))))
    });
    let constraints = (0..count).map(|nth| match nth {
        0 => Constraint::Max(widths[0].max(NAME_MIN)),
        nth => Constraint::Length(widths[nth]),
    });
    Table::new(rows, constraints)
        .header(Row::new(heads).style(paint.of(Color::Cyan)))
        .column_spacing(GAP)
}

/// How many columns there is room for: the first is always shown, and cut before others are left out.
fn fitting(widths: &[u16], room: u16) -> usize {
    let mut taken = widths.first().map_or(0, |name| (*name).min(NAME_MIN));
    let mut count = usize::from(!widths.is_empty());
    for width in widths.iter().skip(1) {
        taken = taken.saturating_add(GAP).saturating_add(*width);
        if taken > room {
            break;
        }
        count += 1;
    }
    count
}

fn foot_line(state: &State, paint: Paint) -> Line<'static> {
    if state.is_typing() {
        return Line::from(vec![
            Span::styled("filter: ", BOLD),
            Span::raw(clean(state.filter())),
            Span::styled("_", paint.of(Color::Cyan)),
            Span::raw("   Enter keep   Esc take back"),
        ]);
    }
    let page = state.look_of_view().map_or(String::new(), |look| {
        format!(
            "{} {}, page {} of {}   ",
            look.matching,
            look.view.name(),
            look.page,
            look.page_count
        )
    });
    let filter = match state.filter() {
        "" => String::new(),
        filter => format!("filter: {}   ", clean(filter)),
    };
    let pause = if state.is_paused() { "go on" } else { "pause" };
    let other = state.view().other().name();
    Line::from(vec![
        Span::styled(format!("{page}{filter}"), BOLD),
        Span::raw(format!(
            "q quit   Tab {other}   ←→ sort   r reverse   / filter   p {pause}   PgUp PgDn page"
        )),
    ])
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use serde_json::json;

    use super::super::state::Key;
    use super::super::view::View;
    use super::*;
    use crate::cmd::admin::problems::problems;

    /// The lines of a screen, as they are read.
    fn screen(state: &State, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, state)).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y| {
            let cells = (0..width).map(|x| buffer[(x, y)].symbol());
            cells.collect::<String>().trim_end().to_owned()
        };
        (0..height).map(line).collect()
    }

    fn queue(name: &str, ready: u64) -> Value {
        json!({
            "name": name, "vhost": "shop", "messages_ready": ready, "messages_unacknowledged": 1,
            "message_stats": { "publish_details": { "rate": 12.5 } }, "consumers": 2,
            "state": "running", "paused": false, "node": "millrace@1",
        })
    }

    fn totals(problems_told: Value) -> Totals {
        let text = |text: &str| Some(text.to_owned());
        Totals {
            node: text("millrace@1"),
            cluster: text("east"),
            version: text("0.1.0"),
            nodes: Some((2, 3)),
            ready: Some(1007),
            unacked: Some(2),
            publish_rate: Some(25.0),
            queues: Some(2),
            connections: Some(5),
            problems: problems(Some(&json!({ "problems": problems_told }))),
            ..Totals::default()
        }
    }

    fn state_with(items: Vec<Value>, problems: Value) -> State {
        let mut state = State::new(View::Queues, None, String::new(), 10);
        let (wish, totals) = (state.wish(), totals(problems));
        let look = Look { view: View::Queues, totals, matching: 57, items, page: 1, page_count: 3 };
        state.see(&wish, Ok(look));
        state
    }

    fn state() -> State {
        state_with(vec![queue("orders", 1000), queue("mails", 7)], json!([]))
    }

    #[test]
    fn a_screen_says_how_the_broker_stands_and_lists_the_rows() {
        let lines = screen(&state(), 120, 12);
        let wanted = [
            "millrace 0.1.0   cluster east   nodes 2 of 3 up   seen from millrace@1",
            "messages 1007 ready, 2 unacked   in 25.0/s   out -   acked -",
            "queues 2   connections 5   channels -   consumers -",
            "ok: nothing needs you",
            "",
            "Queue             Ready▼  Unacked      In  Acked  Consumers  State    Paused  Vhost  Leader",
            "orders              1000        1  12.5/s      -          2  running  no      shop   millrace@1",
            "mails                  7        1  12.5/s      -          2  running  no      shop   millrace@1",
            "",
            "",
            "",
            "57 queues, page 1 of 3   q quit   Tab connections   ←→ sort   r reverse   / filter   p pause   PgUp PgDn page",
        ];
        assert_eq!(lines, wanted, "{lines:#?}");
        assert_eq!(rows_on(12), 5);
    }

    #[test]
    fn the_worst_problem_a_pause_a_filter_and_a_failure_are_seen() {
        let told = json!([
            { "severity": "warning", "what": "it waits", "remedy": "wait" },
            { "severity": "critical", "what": "it burns", "remedy": "run" },
        ]);
        let mut state = state_with(Vec::new(), told);
        for key in [Key::Letter('p'), Key::Letter('/'), Key::Letter('x')] {
            state.press(key);
        }
        let lines = screen(&state, 100, 12);
        assert!(lines[0].ends_with("PAUSED"), "{lines:#?}");
        assert_eq!(lines[3], "critical: it burns (and 1 more: millrace status)");
        assert_eq!(lines[5], "no queues with \"x\" in their name");
        assert_eq!(lines[11], "filter: x_   Enter keep   Esc take back");
        let wish = state.wish();
        state.see(&wish, Err("no answer\u{1b}[2J".to_owned()));
        assert_eq!(
            screen(&state, 100, 12)[3],
            "what is below is old: no answer\\u{1b}[2J",
            "and nothing acts on the terminal"
        );
    }

    #[test]
    fn a_narrow_screen_leaves_out_the_last_columns_and_cuts_the_name() {
        let name = "a.rather.long.name.of.a.queue";
        let lines = screen(&state_with(vec![queue(name, 3)], json!([])), 40, 10);
        assert_eq!(lines[5], "Queue                    Ready▼  Unacked", "{lines:#?}");
        assert_eq!(lines[6], "a.rather.long.name.of.a       3        1", "the name has the rest");
        assert_eq!(fitting(&[30, 6, 7], 4), 1, "the name is always there");
        assert_eq!(fitting(&[30, 6, 7], 24), 2);
        assert_eq!(fitting(&[], 80), 0);
    }

    #[test]
    fn the_column_and_the_direction_of_the_sort_are_seen_without_colours() {
        let mut state = state();
        state.has_colours = false;
        state.press(Key::Left);
        let lines = screen(&state, 120, 10);
        assert!(lines[5].starts_with("Queue▲ "), "{lines:#?}");
        state.press(Key::Letter('r'));
        assert!(screen(&state, 120, 10)[5].starts_with("Queue▼ "));
    }

    #[test]
    fn every_size_can_be_drawn() {
        let before = State::new(View::Connections, None, String::new(), 1);
        for state in [state(), before] {
            for (width, height) in [(0, 0), (1, 1), (1, 30), (300, 1), (5, 5), (20, 7), (300, 90)] {
                assert_eq!(screen(&state, width, height).len(), usize::from(height));
            }
        }
        assert_eq!((rows_on(0), rows_on(7), rows_on(30)), (1, 1, 23));
    }
}
