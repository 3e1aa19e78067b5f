use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn settings(words: &str) -> Settings {
    let text = format!("name = \"s\"\nrouting_key = \"jobs\"\n{words}");
    toml::from_str(&text).unwrap()
}

fn cron(words: &str) -> Cron {
    Cron::new(vec![settings(words)]).unwrap()
}

fn ms(text: &str) -> i64 {
    DateTime::parse_from_rfc3339(text).unwrap().timestamp_millis()
}

fn state(last: i64) -> State {
    State { revision: 1, last: BTreeMap::from([("s".to_owned(), last)]) }
}

/// What a scheduler does with what is due.
fn decide(state: &mut State, due: &Due) -> Vec<i64> {
    for (name, tick) in &due.skipped {
        state.last.insert(name.clone(), *tick);
    }
    for fire in &due.fires {
        let before = state.last.insert(fire.name.clone(), fire.tick_ms);
        assert!(before < Some(fire.tick_ms), "ticks fire in their order, each once");
    }
    due.fires.iter().map(|fire| fire.tick_ms).collect()
}

/// Every tick that fires when it is looked every `step` milliseconds.
fn run(cron: &Cron, from: i64, to: i64, step: i64) -> Vec<i64> {
    let mut state = state(from);
    let mut fired = Vec::new();
    let mut now = from;
    while now < to {
        now += step;
        let due = cron.due(&state, now);
        fired.extend(decide(&mut state, &due));
    }
    fired
}

fn local(ticks: &[i64], zone: &str) -> Vec<String> {
    let zone: Tz = zone.parse().unwrap();
    let local = |ms: &i64| DateTime::from_timestamp_millis(*ms).unwrap().with_timezone(&zone);
    ticks.iter().map(|ms| local(ms).format("%d %H:%M %z").to_string()).collect()
}

const MINUTE: i64 = 60_000;

#[test]
fn a_tick_fires_once_with_an_id_that_names_it() {
    let cron = cron("cron = \"0 30 9 * * Mon-Fri\"\nzone = \"Europe/Zurich\"\nbody = \"go\"");
    let due = cron.due(&state(ms("2026-06-01T07:29:59Z")), ms("2026-06-01T07:30:00Z"));
    let [fire] = &due.fires[..] else { panic!("{due:?}") };
    assert_eq!(fire.publish.message.id, format!("cron:s:{}", ms("2026-06-01T07:30:00Z")));
    assert_eq!(fire.publish.routing_key, "jobs");
    assert_eq!(&fire.publish.message.body[..], b"go");
    let after = state(fire.tick_ms);
    assert_eq!(cron.due(&after, ms("2026-06-01T07:30:05Z")), Due::default());
    // Monday to Friday.
    let week = run(&cron, ms("2026-06-01T00:00:00Z"), ms("2026-06-15T00:00:00Z"), MINUTE / 4);
    assert_eq!(week.len(), 10);
    assert_eq!(cron.next(ms("2026-06-05T08:00:00Z")), Some(ms("2026-06-08T07:30:00Z")));
}

#[test]
fn a_daily_time_fires_once_on_the_days_when_the_clock_changes() {
    // Zurich: 02:00 becomes 03:00 on 29 March 2026, 03:00 becomes 02:00 on 25 October 2026.
    let cron = cron("cron = \"0 30 2 * * *\"\nzone = \"Europe/Zurich\"");
    let spring = run(&cron, ms("2026-03-27T12:00:00Z"), ms("2026-03-30T12:00:00Z"), MINUTE / 4);
    let spring = local(&spring, "Europe/Zurich");
    assert_eq!(spring, ["28 02:30 +0100", "29 03:00 +0200", "30 02:30 +0200"]);
    let autumn = run(&cron, ms("2026-10-23T12:00:00Z"), ms("2026-10-26T12:00:00Z"), MINUTE / 4);
    let autumn = local(&autumn, "Europe/Zurich");
    assert_eq!(autumn, ["24 02:30 +0200", "25 02:30 +0200", "26 02:30 +0100"]);
}

#[test]
fn a_repeated_time_follows_the_wall_clock_on_the_days_when_it_changes() {
    let cron = cron("cron = \"0 0,30 * * * *\"\nzone = \"Europe/Zurich\"");
    let spring = run(&cron, ms("2026-03-29T00:15:00Z"), ms("2026-03-29T01:45:00Z"), MINUTE / 4);
    assert_eq!(
        local(&spring, "Europe/Zurich"),
        ["29 01:30 +0100", "29 03:00 +0200", "29 03:30 +0200"]
    );
    let autumn = run(&cron, ms("2026-10-25T00:15:00Z"), ms("2026-10-25T01:45:00Z"), MINUTE / 4);
    assert_eq!(
        local(&autumn, "Europe/Zurich"),
        ["25 02:30 +0200", "25 02:00 +0100", "25 02:30 +0100"]
    );
}

#[test]
fn a_change_of_the_clock_is_told_with_what_it_does() {
    let told = |words: &str, last: &str, now: &str| -> Vec<&'static str> {
        let due = cron(words).due(&state(ms(last)), ms(now));
        let words = due.notices.into_iter().filter_map(|notice| match notice {
            Notice::ClockChanged { words, .. } => Some(words),
            Notice::Missed { .. } | Notice::ClockBehind { .. } => None,
        });
        words.collect()
    };
    let daily = "cron = \"0 30 2 * * *\"\nzone = \"Europe/Zurich\"";
    let gap = told(daily, "2026-03-28T01:30:00Z", "2026-03-29T01:00:01Z");
    assert!(gap[0].contains("did not exist"), "{gap:?}");
    let twice = told(daily, "2026-10-24T00:30:00Z", "2026-10-25T00:30:01Z");
    assert!(twice[0].contains("the first time"), "{twice:?}");
    let often = "cron = \"0 */30 * * * *\"\nzone = \"Europe/Zurich\"";
    let skipped = told(often, "2026-03-29T00:30:00Z", "2026-03-29T01:00:01Z");
    assert!(skipped[0].contains("skipped"), "{skipped:?}");
    let again = told(often, "2026-10-25T00:30:00Z", "2026-10-25T01:00:01Z");
    assert!(again[0].contains("fire twice"), "{again:?}");
    assert!(told(often, "2026-06-01T00:30:00Z", "2026-06-01T01:00:01Z").is_empty());
}

#[test]
fn missed_ticks_are_left_out_or_made_up_for_as_asked() {
    let (last, now) = (ms("2026-06-01T00:00:00Z"), ms("2026-06-11T00:00:10Z"));
    let fired = |missed: &str| {
        let due = cron(&format!("cron = \"0 * * * * *\"\n{missed}")).due(&state(last), now);
        let mut after = state(last);
        let fired = decide(&mut after, &due);
        let tick = now - 10_000;
        assert_eq!((fired.last(), after.last["s"]), (Some(&tick), tick), "the last is on time");
        let again = cron("cron = \"0 * * * * *\"").due(&after, now);
        assert_eq!(again.fires, [], "nothing is due twice");
        (fired.len(), due.notices.len())
    };
    assert_eq!(fired("missed = \"skip\""), (1, 1));
    assert_eq!(fired("missed = \"once\""), (2, 1));
    assert_eq!(fired("missed = \"all\"\nmissed_max = 7"), (8, 1));
    assert_eq!(fired("missed = \"all\"\nmissed_max = 1000"), (1001, 1));
}

#[test]
fn what_is_left_out_stays_left_out_even_without_a_tick_on_time() {
    let cron = cron("cron = \"0 0 0 * * *\"\nmissed = \"skip\"");
    let mut state = state(ms("2026-06-01T00:00:00Z"));
    let now = ms("2026-06-04T12:00:00Z");
    let due = cron.due(&state, now);
    assert_eq!((due.fires.len(), due.skipped.len()), (0, 1));
    decide(&mut state, &due);
    assert_eq!(state.last["s"], ms("2026-06-04T00:00:00Z"));
    assert_eq!(cron.due(&state, now), Due::default(), "it is told once");
}

#[test]
fn a_clock_that_was_ahead_fires_nothing_again() {
    let cron = cron("cron = \"0 * * * * *\"");
    let state = state(ms("2026-06-01T12:00:00Z"));
    let due = cron.due(&state, ms("2026-06-01T11:00:00Z"));
    assert_eq!(due.fires, []);
    assert_eq!(due.notices, [Notice::ClockBehind { name: "s".into(), by_ms: 3_600_000 }]);
    assert_eq!(cron.due(&state, ms("2026-06-01T12:01:00Z")).fires.len(), 1);
}

#[test]
fn a_wrong_schedule_says_what_is_wrong() {
    let wrong = [
        ("cron = \"99 * * * * *\"", "cron"),
        ("cron = \"* * * * *\"\nzone = \"Europe/Bern2\"", "no time zone"),
        ("cron = \"* * * * *\"\nmissed_max = 0", "missed_max"),
        ("cron = \"* * * * *\"\nlate = \"2h\"", "late"),
    ];
    for (words, word) in wrong {
        let problems = settings(words).problems();
        assert!(problems.iter().any(|problem| problem.contains(word)), "{problems:?}");
    }
    let twice = vec![settings("cron = \"* * * * *\""), settings("cron = \"* * * * *\"")];
    assert!(Cron::new(twice).unwrap_err().to_string().contains("two schedules"));
    let unknown = toml::from_str::<Settings>("name = \"s\"\nevery = \"5m\"");
    assert!(unknown.unwrap_err().to_string().contains("every"));
}

#[test]
fn a_new_schedule_has_no_past_and_states_merge_to_the_later_tick() {
    let cron = cron("cron = \"0 * * * * *\"");
    assert_eq!(cron.unknown(&State::default()).collect::<Vec<_>>(), ["s"]);
    assert_eq!(cron.due(&State::default(), ms("2026-06-01T12:00:00Z")), Due::default());
    let mut older = State { revision: 3, last: BTreeMap::from([("a".into(), 1), ("b".into(), 9)]) };
    older.merge(State { revision: 4, last: BTreeMap::from([("a".into(), 5), ("b".into(), 2)]) });
    assert_eq!(
        older,
        State { revision: 4, last: BTreeMap::from([("a".into(), 5), ("b".into(), 9)]) }
    );
}

const ZONES: [&str; 6] = [
    "Europe/Zurich",
    "America/New_York",
    "Australia/Lord_Howe", // Half an hour.
    "America/Santiago",    // At midnight.
    "Asia/Shanghai",       // None.
    "Africa/Casablanca",
];
const PATTERNS: [&str; 6] = [
    "0 30 2 * * *",
    "0 0 0 * * *",
    "0 */15 * * * *",
    "0 10,40 1-3 * * *",
    "0 30 1 * * Sun",
    "15 */7 * * * *",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    /// However the clock moves and whenever it is looked, no tick fires twice, ticks fire in order, and with
    /// `missed = "all"` none is left out.
    #[test]
    fn no_tick_fires_twice_and_none_is_forgotten(
        zone in 0..ZONES.len(),
        pattern in 0..PATTERNS.len(),
        start in 0_i64..365,
        steps in prop::collection::vec(prop_oneof![
            8 => 1_000_i64..7_200_000,
            1 => 7_200_000_i64..100_000_000,
            2 => -7_200_000_i64..0,
        ], 1..60),
    ) {
        let words = format!(
            "cron = \"{}\"\nzone = \"{}\"\nmissed = \"all\"\nmissed_max = 1000",
            PATTERNS[pattern], ZONES[zone]
        );
        let cron = cron(&words);
        let from = ms("2026-01-01T00:00:00Z") + start * 86_400_000;
        let (mut state, mut now, mut latest) = (state(from), from, from);
        let mut fired = Vec::new();
        for step in steps {
            now += step;
            latest = latest.max(now);
            let due = cron.due(&state, now);
            fired.extend(decide(&mut state, &due));
        }
        let expected = run(&cron, from, latest, 15_000_i64.max((latest - from) / 20_000));
        let fired_set: BTreeSet<i64> = fired.iter().copied().collect();
        prop_assert_eq!(fired.len(), fired_set.len());
        let expected: BTreeSet<i64> = expected.into_iter().filter(|&tick| tick <= latest).collect();
        prop_assert_eq!(fired_set, expected);
    }

    /// The search backwards (what is due) and the one forwards (when to look next) agree on every tick.
    #[test]
    fn a_tick_that_is_foretold_is_due(
        zone in 0..ZONES.len(),
        pattern in 0..PATTERNS.len(),
        start in 0_i64..(366 * 24 * 60),
    ) {
        let cron = cron(&format!("cron = \"{}\"\nzone = \"{}\"", PATTERNS[pattern], ZONES[zone]));
        let mut now = ms("2026-01-01T00:00:00Z") + start * MINUTE;
        for _ in 0..20 {
            let next = cron.next(now).unwrap();
            prop_assert!(next > now);
            let before = cron.due(&state(now), next - 1);
            prop_assert_eq!(before.fires.len(), 0, "nothing is due before {}", next);
            let due = cron.due(&state(now), next);
            prop_assert_eq!(due.fires.len(), 1);
            prop_assert_eq!(due.fires[0].tick_ms, next);
            now = next;
        }
    }
}
