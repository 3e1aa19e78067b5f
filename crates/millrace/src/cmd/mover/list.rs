//! Which queues are moved: those of the command line, or those of a file of names or definitions.

use std::io::Read as _;
use std::path::Path;

use amqp::{FieldTable, FieldValue};
use client::QueueSpec;
use client::limits::SHORT_STRING_BYTES_MAX;
use serde_json::{Map, Value};

use super::Args;

/// Largest file of names or definitions, in bytes.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// Most queues of one run.
const QUEUES_MAX: usize = 10_000;
/// Most queues that are followed: each has two connections.
const FOLLOWED_MAX: usize = 500;
/// Deepest arguments of a queue.
const DEPTH_MAX: usize = 32;

/// A queue that is to be moved, and how it is declared where it is missing.
pub(super) type Wanted = QueueSpec;

/// The queues that the command line asks for, each once.
///
/// # Errors
/// In words: the file cannot be used, or there are no queues, or too many.
pub(super) fn wanted(args: &Args) -> Result<Vec<Wanted>, String> {
    let given = |name: &str| declared(args, name);
    let mut queues = match &args.all {
        None => args.queue.iter().map(|name| given(name)).collect(),
        Some(file) => {
            let text = read(file)?;
            let found = parse(&text, &args.from.vhost, given);
            found.map_err(|why| format!("{}: {why}", file.display()))?
        }
    };
    if let Some(pattern) = &args.pattern {
        queues.retain(|queue| matches(pattern, &queue.name));
    }
    let mut names = std::collections::BTreeSet::new();
    queues.retain(|queue| names.insert(queue.name.clone()));
    let most = if args.follow { FOLLOWED_MAX } else { QUEUES_MAX };
    if let Some(queue) = queues
        .iter()
        .find(|queue| queue.name.is_empty() || queue.name.len() > SHORT_STRING_BYTES_MAX)
    {
        return Err(format!("`{}`: the name of a queue has 1 to 255 bytes", queue.name));
    }
    match queues.len() {
        0 => Err("no queue is left to move: see --all and --pattern".into()),
        count if count > most => Err(format!(
            "{count} queues are more than one run moves ({most}): choose some with --pattern"
        )),
        _ => Ok(queues),
    }
}

/// As the command line says it: durable, with the arguments given.
fn declared(args: &Args, name: &str) -> Wanted {
    let arguments = args.argument.iter();
    let arguments = arguments.map(|argument| (argument.name.clone(), argument.value.clone()));
    Wanted { arguments: arguments.collect(), ..Wanted::durable(name) }
}

fn read(file: &Path) -> Result<String, String> {
    let unread = |error: std::io::Error| format!("{}: {error}", file.display());
    let input: Box<dyn std::io::Read> = match file.to_str() {
        Some("-") => Box::new(std::io::stdin()),
        Some(_) | None => Box::new(std::fs::File::open(file).map_err(unread)?),
    };
    let mut text = String::new();
    input.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(unread)?;
    match text.len() as u64 > FILE_BYTES_MAX {
        true => Err(format!("{}: it is longer than {FILE_BYTES_MAX} bytes", file.display())),
        false => Ok(text),
    }
}

/// Reads definitions, or a list of queues as the HTTP API gives it, or names, one a line.
fn parse(text: &str, vhost: &str, given: impl Fn(&str) -> Wanted) -> Result<Vec<Wanted>, String> {
    let text = text.trim_start_matches('\u{feff}').trim();
    if !text.starts_with(['{', '[']) {
        let names = text.lines().map(str::trim).filter(|name| !name.is_empty());
        return Ok(names.map(given).collect());
    }
    let json: Value = serde_json::from_str(text).map_err(|error| format!("no JSON: {error}"))?;
    let queues = match &json {
        Value::Array(queues) => queues,
        Value::Object(definitions) => match definitions.get("queues") {
            Some(Value::Array(queues)) => queues,
            Some(_) | None => return Err("these definitions have no `queues`".into()),
        },
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            return Err("it is neither definitions nor a list of queues".into());
        }
    };
    let mut wanted = Vec::new();
    for queue in queues {
        wanted.extend(defined(queue, vhost)?);
    }
    Ok(wanted)
}

/// A queue of definitions. None: it is another vhost's, or one connection's own.
fn defined(queue: &Value, vhost: &str) -> Result<Option<Wanted>, String> {
    let text = |key: &str| queue.get(key).and_then(Value::as_str);
    let is = |key: &str| queue.get(key).and_then(Value::as_bool).unwrap_or(false);
    let name = text("name").ok_or("a queue has no `name`")?;
    if text("vhost").is_some_and(|its| its != vhost) || is("exclusive") {
        return Ok(None);
    }
    let arguments = match queue.get("arguments") {
        Some(Value::Object(arguments)) => {
            table(arguments, 0).map_err(|why| format!("arguments of `{name}`: {why}"))?
        }
        Some(_) | None => FieldTable::new(),
    };
    let (durable, auto_delete) = (is("durable"), is("auto_delete"));
    Ok(Some(Wanted { name: name.into(), durable, exclusive: false, auto_delete, arguments }))
}

/// As brokers read JSON: whole numbers are 64 bits wide, texts are long strings. The depth is bounded.
fn table(object: &Map<String, Value>, depth: usize) -> Result<FieldTable, String> {
    let fields = object.iter().map(|(name, value)| {
        if name.len() > SHORT_STRING_BYTES_MAX {
            return Err("a name has more than 255 bytes".to_owned());
        }
        Ok((name.clone(), field(value, depth)?))
    });
    Ok(FieldTable(fields.collect::<Result<_, _>>()?))
}

fn field(value: &Value, depth: usize) -> Result<FieldValue, String> {
    if depth >= DEPTH_MAX {
        return Err("they are too deep".into());
    }
    Ok(match value {
        Value::Null => FieldValue::Void,
        Value::Bool(value) => FieldValue::Bool(*value),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => FieldValue::I64(whole),
            (None, Some(part)) => FieldValue::F64(part),
            (None, None) => return Err("a number is too large".into()),
        },
        Value::String(text) => FieldValue::LongStr(text.clone().into_bytes()),
        Value::Array(values) => {
            let values = values.iter().map(|value| field(value, depth + 1));
            FieldValue::Array(values.collect::<Result<_, _>>()?)
        }
        Value::Object(object) => FieldValue::Table(table(object, depth + 1)?),
    })
}

/// Whether the whole of `name` fits `pattern`, in which `*` stands for any text and `?` for any one character.
fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), name.chars().collect());
    let (mut at, mut seen) = (0, 0);
    // Where the last star stands, and how much of the name it has taken.
    let mut star = None;
    while seen < name.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at, seen));
                at += 1;
            }
            Some(one) if *one == '?' || *one == name[seen] => {
                at += 1;
                seen += 1;
            }
            Some(_) | None => match star {
                Some((stands, taken)) => {
                    star = Some((stands, taken + 1));
                    (at, seen) = (stands + 1, taken + 1);
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|rest| *rest == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        let found = parse(text, "/", |name| Wanted::durable(name)).unwrap();
        found.into_iter().map(|queue| queue.name).collect()
    }

    #[test]
    fn names_stand_one_a_line() {
        assert_eq!(names("orders\r\n\n  invoices eu \nlast"), ["orders", "invoices eu", "last"]);
        assert!(names("\n").is_empty());
    }

    #[test]
    fn definitions_give_the_queues_of_the_vhost_with_their_properties() {
        let text = r#"{"rabbit_version": "3.10.8", "queues": [
            {"name": "a", "vhost": "/", "durable": true, "auto_delete": false,
             "arguments": {"x-max-priority": 5, "x-queue-type": "classic", "x-single-active-consumer": true}},
            {"name": "b", "vhost": "shop", "durable": true},
            {"name": "c", "durable": false, "auto_delete": true, "arguments": {}},
            {"name": "d", "vhost": "/", "durable": false, "exclusive": true}]}"#;
        let found = parse(text, "/", |name| Wanted::durable(name)).unwrap();
        assert_eq!(found.len(), 2);
        assert!(found[0].durable && !found[0].auto_delete);
        assert_eq!(found[0].arguments.find("x-max-priority"), Some(&FieldValue::I64(5)));
        let single = found[0].arguments.find("x-single-active-consumer");
        assert_eq!(single, Some(&FieldValue::Bool(true)));
        assert!(found[1].name == "c" && found[1].auto_delete && !found[1].durable);
        assert_eq!(names(r#"[{"name": "x", "vhost": "/"}]"#), ["x"]);
    }

    #[test]
    fn what_is_no_list_of_queues_is_told() {
        let told = |text: &str| parse(text, "/", |name| Wanted::durable(name)).unwrap_err();
        assert!(told("{\"users\": []}").contains("`queues`"));
        assert!(told("{\"queues\": [{}]}").contains("`name`"));
        assert!(told("[1, 2").contains("no JSON"));
        let deep = format!("{}1{}", "[".repeat(40), "]".repeat(40));
        let told = told(&format!("[{{\"name\": \"q\", \"arguments\": {{\"x\": {deep}}}}}]"));
        assert!(told.contains("`q`") && told.contains("too deep"), "{told}");
    }

    #[test]
    fn a_pattern_fits_whole_names() {
        for (pattern, name, fits) in [
            ("*", "", true),
            ("orders.*", "orders.eu", true),
            ("orders.*", "orders", false),
            ("*.dead", "a.dead.dead", true),
            ("*.dead", "a.dead.d", false),
            ("a*b*c", "a1b2b3c", true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("", "a", false),
        ] {
            assert_eq!(matches(pattern, name), fits, "{pattern} {name}");
        }
    }
}
