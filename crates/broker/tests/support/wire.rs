//! Methods as text and as bytes, by the table of methods: written again here, so that the codec is not tested
//! with itself.

use std::collections::BTreeMap;

const TABLE: &str = include_str!("../../../amqp/spec/methods.toml");

/// One method of the table.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    pub(crate) name: String,
    ids: (u16, u16),
    /// Name and type, in order.
    fields: Vec<(String, String)>,
}

/// Every method, by name.
pub(crate) fn methods() -> BTreeMap<String, Spec> {
    let mut all: BTreeMap<String, Spec> = BTreeMap::new();
    let mut class_id = 0;
    let mut section = String::new();
    for line in TABLE.lines() {
        let line = line.trim();
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            section = name.to_owned();
        } else if let Some(id) = line.strip_prefix("id = ") {
            let id: u16 = id.parse().unwrap();
            if section.contains('.') {
                let spec = Spec { name: section.clone(), ids: (class_id, id), fields: Vec::new() };
                all.insert(section.clone(), spec);
            } else {
                class_id = id;
            }
        } else if let Some(fields) = line.strip_prefix("fields = [") {
            let fields = fields.trim_end_matches(']').split("\", \"").map(|field| {
                let (name, kind) = field.trim_matches('"').split_once(": ").unwrap();
                (name.to_owned(), kind.to_owned())
            });
            all.get_mut(&section).unwrap().fields = fields.collect();
        }
    }
    all
}

/// Splits a line at spaces that are outside of quotes, braces and brackets.
pub(crate) fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let (mut depth, mut quoted) = (0, false);
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            '{' | '[' if !quoted => depth += 1,
            '}' | ']' if !quoted => depth -= 1,
            ' ' if !quoted && depth == 0 => {
                words.push(String::new());
                continue;
            }
            _ => {}
        }
        words.last_mut().unwrap().push(c);
    }
    words.retain(|word| !word.is_empty());
    words
}

/// `name=value` words as a map; a word alone is a bit that is set.
pub(crate) fn pairs(words: &[String]) -> BTreeMap<String, String> {
    let pair = |word: &String| match word.split_once('=') {
        Some((name, value)) => (name.to_owned(), unquoted(value).to_owned()),
        None => (word.clone(), "true".to_owned()),
    };
    words.iter().map(pair).collect()
}

fn unquoted(text: &str) -> &str {
    text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text)
}

/// A method frame's payload.
pub(crate) fn encode(spec: &Spec, values: &BTreeMap<String, String>) -> Vec<u8> {
    let known = |name: &String| spec.fields.iter().any(|(field, _)| field == name);
    for name in values.keys() {
        assert!(
            known(name) || name == "body" || name.starts_with("p:"),
            "{} has no {name}",
            spec.name
        );
    }
    let mut out = Vec::new();
    out.extend(spec.ids.0.to_be_bytes());
    out.extend(spec.ids.1.to_be_bytes());
    let mut bits = None;
    for (name, kind) in &spec.fields {
        let value = values.get(name).map_or("", String::as_str);
        if kind == "bit" {
            let (octet, place) = bits.unwrap_or((0u8, 0));
            bits = Some((octet | u8::from(value == "true") << place, place + 1));
            continue;
        }
        out.extend(bits.take().map(|(octet, _)| octet));
        let number = |text: &str| if text.is_empty() { 0 } else { text.parse::<u64>().unwrap() };
        match kind.as_str() {
            "u8" => out.push(number(value) as u8),
            "u16" => out.extend((number(value) as u16).to_be_bytes()),
            "u32" => out.extend((number(value) as u32).to_be_bytes()),
            "u64" => out.extend(number(value).to_be_bytes()),
            "shortstr" | "name" => put_short(&mut out, value),
            "longstr" | "secret" => put_long(&mut out, &unescaped(value)),
            "table" => put_long(&mut out, &table(value)),
            other => panic!("no such type: {other}"),
        }
    }
    out.extend(bits.take().map(|(octet, _)| octet));
    out
}

/// `\r` and `\n` in it are line ends.
fn put_short(out: &mut Vec<u8>, text: &str) {
    let text = text.replace("\\r", "\r").replace("\\n", "\n");
    out.push(text.len() as u8);
    out.extend(text.as_bytes());
}

fn put_long(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend((bytes.len() as u32).to_be_bytes());
    out.extend(bytes);
}

/// `\0` is a zero byte; `table:{...}` is a field table without its length.
fn unescaped(text: &str) -> Vec<u8> {
    match text.strip_prefix("table:") {
        Some(text) => table(text),
        None => text.replace("\\0", "\0").into_bytes(),
    }
}

/// `{name=int:5 other=str:abc deep={...} list=[str:a int:1]}` without its length.
pub(crate) fn table(text: &str) -> Vec<u8> {
    let inner = text.trim().strip_prefix('{').and_then(|text| text.strip_suffix('}'));
    let mut out = Vec::new();
    for word in words(inner.unwrap_or_default()) {
        let (name, value) = word.split_once('=').unwrap();
        put_short(&mut out, name);
        put_value(&mut out, value);
    }
    out
}

fn put_value(out: &mut Vec<u8>, value: &str) {
    if value.starts_with('{') {
        out.push(b'F');
        return put_long(out, &table(value));
    }
    if let Some(list) = value.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
        let mut elements = Vec::new();
        words(list).iter().for_each(|element| put_value(&mut elements, element));
        out.push(b'A');
        return put_long(out, &elements);
    }
    let (kind, text) = value.split_once(':').unwrap_or((value, ""));
    let text = unquoted(text);
    match kind {
        "bool" => out.extend([b't', u8::from(text == "true")]),
        "byte" => {
            out.push(b'b');
            out.extend(text.parse::<i8>().unwrap().to_be_bytes());
        }
        "short" => {
            out.push(b's');
            out.extend(text.parse::<i16>().unwrap().to_be_bytes());
        }
        "int" => {
            out.push(b'I');
            out.extend(text.parse::<i32>().unwrap().to_be_bytes());
        }
        "long" => {
            out.push(b'l');
            out.extend(text.parse::<i64>().unwrap().to_be_bytes());
        }
        "str" => {
            out.push(b'S');
            put_long(out, text.as_bytes());
        }
        "void" => out.push(b'V'),
        other => panic!("no such value: {other}"),
    }
}

/// Flags and values of properties: `headers`, `delivery-mode`, `reply-to`, `expiration`, `user-id`, …
pub(crate) fn properties(values: &BTreeMap<String, String>) -> Vec<u8> {
    const NAMES: [&str; 14] = [
        "content-type",
        "content-encoding",
        "headers",
        "delivery-mode",
        "priority",
        "correlation-id",
        "reply-to",
        "expiration",
        "message-id",
        "timestamp",
        "type",
        "user-id",
        "app-id",
        "cluster-id",
    ];
    let (mut flags, mut out) = (0u16, Vec::new());
    for (place, name) in NAMES.iter().enumerate() {
        let Some(value) = values.get(&format!("p:{name}")) else { continue };
        flags |= 1 << (15 - place);
        match *name {
            "headers" => put_long(&mut out, &table(value)),
            "delivery-mode" | "priority" => out.push(value.parse().unwrap()),
            "timestamp" => out.extend(value.parse::<u64>().unwrap().to_be_bytes()),
            _ => put_short(&mut out, value),
        }
    }
    [flags.to_be_bytes().to_vec(), out].concat()
}

/// A frame around a payload.
pub(crate) fn frame(kind: u8, channel: u16, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![kind];
    out.extend(channel.to_be_bytes());
    put_long(&mut out, payload);
    out.push(0xCE);
    out
}

/// A method, and if it is a publish its header and body, in frames.
pub(crate) fn message(spec: &Spec, channel: u16, values: &BTreeMap<String, String>) -> Vec<u8> {
    let mut out = frame(1, channel, &encode(spec, values));
    if spec.name == "basic.publish" {
        let body = values.get("body").map_or("", String::as_str).as_bytes();
        out.extend(header(channel, body.len() as u64, &properties(values)));
        if !body.is_empty() {
            out.extend(frame(3, channel, body));
        }
    }
    out
}

/// A content header frame.
pub(crate) fn header(channel: u16, body_bytes: u64, properties: &[u8]) -> Vec<u8> {
    let mut payload = vec![0, 60, 0, 0];
    payload.extend(body_bytes.to_be_bytes());
    payload.extend(properties);
    frame(2, channel, &payload)
}

/// What a server sent, a line for each frame but that content goes with its method. The names that the server
/// makes up are shown without their chance.
pub(crate) fn lines(methods: &BTreeMap<String, Spec>, mut bytes: &[u8]) -> Vec<String> {
    let mut lines = Vec::new();
    while !bytes.is_empty() {
        if bytes.starts_with(b"AMQP") {
            lines.push("0 protocol-header".to_owned());
            bytes = &bytes[8..];
            continue;
        }
        let size = u32::from_be_bytes(bytes[3..7].try_into().unwrap()) as usize;
        let channel = u16::from_be_bytes([bytes[1], bytes[2]]);
        let payload = &bytes[7..7 + size];
        assert_eq!(bytes[7 + size], 0xCE, "a frame ends in its octet");
        match bytes[0] {
            1 => lines.push(format!("{channel} {}", method_text(methods, payload))),
            2 => lines.last_mut().unwrap().push_str(&header_text(payload)),
            3 => {
                assert!(!payload.is_empty(), "no empty body frame is sent");
                let text = String::from_utf8_lossy(payload);
                lines.last_mut().unwrap().push_str(&format!(" body={text}"));
            }
            8 => lines.push("0 heartbeat".to_owned()),
            kind => panic!("a frame of type {kind}"),
        }
        bytes = &bytes[8 + size..];
    }
    lines
}

fn header_text(payload: &[u8]) -> String {
    let raw = &payload[12..];
    if raw == [0, 0] {
        return String::new();
    }
    let properties = amqp::Properties::decode(raw).unwrap();
    let mut text = String::new();
    let mut add = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            text.push_str(&format!(" p:{name}={}", without_chance(&value)));
        }
    };
    add("headers", properties.headers.map(table_text));
    add("delivery-mode", properties.delivery_mode.map(|value| value.to_string()));
    add("reply-to", properties.reply_to.map(str::to_owned));
    add("correlation-id", properties.correlation_id.map(str::to_owned));
    add("user-id", properties.user_id.map(str::to_owned));
    add("expiration", properties.expiration.map(str::to_owned));
    text
}

fn method_text(methods: &BTreeMap<String, Spec>, payload: &[u8]) -> String {
    let ids = (
        u16::from_be_bytes([payload[0], payload[1]]),
        u16::from_be_bytes([payload[2], payload[3]]),
    );
    let spec = methods.values().find(|spec| spec.ids == ids).expect("a known method");
    let mut text = spec.name.clone();
    let mut at = 4;
    let mut bit = 0;
    let mut take = |count: usize| {
        at += count;
        &payload[at - count..at]
    };
    let mut octet = 0;
    for (name, kind) in &spec.fields {
        if kind == "bit" {
            if bit % 8 == 0 {
                octet = take(1)[0];
            }
            if octet >> (bit % 8) & 1 == 1 {
                text.push_str(&format!(" {name}"));
            }
            bit += 1;
            continue;
        }
        bit = 0;
        let value = match kind.as_str() {
            "u8" => take(1)[0].to_string(),
            "u16" => u16::from_be_bytes(take(2).try_into().unwrap()).to_string(),
            "u32" => u32::from_be_bytes(take(4).try_into().unwrap()).to_string(),
            "u64" => u64::from_be_bytes(take(8).try_into().unwrap()).to_string(),
            "shortstr" | "name" => {
                let size = usize::from(take(1)[0]);
                String::from_utf8(take(size).to_vec()).unwrap()
            }
            "longstr" | "secret" | "table" => {
                let size = u32::from_be_bytes(take(4).try_into().unwrap()) as usize;
                let bytes = take(size);
                match kind.as_str() {
                    "table" => amqp::TableRef::validate(bytes).map(table_text).unwrap(),
                    _ => String::from_utf8_lossy(bytes).into_owned(),
                }
            }
            other => panic!("no such type: {other}"),
        };
        let is_counted = matches!(name.as_str(), "message-count" | "consumer-count");
        let is_default = value.is_empty() || value == "{}" || (value == "0" && !is_counted);
        if name != "reserved" && !is_default {
            let value = without_chance(&value);
            let is_bare = !value.contains(' ') || value.starts_with('{');
            let quote = if is_bare { "" } else { "\"" };
            text.push_str(&format!(" {name}={quote}{value}{quote}"));
        }
    }
    assert_eq!(at, payload.len(), "{text}: all of the payload is read");
    text
}

/// A table as a script writes it.
fn table_text(table: amqp::TableRef<'_>) -> String {
    let fields = table.iter().map(|(name, value)| format!("{name}={}", value_text(&value)));
    format!("{{{}}}", fields.collect::<Vec<_>>().join(" "))
}

fn value_text(value: &amqp::ValueRef<'_>) -> String {
    use amqp::ValueRef;
    match value {
        ValueRef::Table(table) => table_text(*table),
        ValueRef::Array(array) => {
            let elements: Vec<String> = array.iter().map(|value| value_text(&value)).collect();
            format!("[{}]", elements.join(" "))
        }
        ValueRef::LongStr(text) => format!("str:{}", String::from_utf8_lossy(text)),
        ValueRef::Bool(value) => format!("bool:{value}"),
        ValueRef::I32(number) => format!("int:{number}"),
        other => format!("{other:?}"),
    }
}

/// Made-up names differ from run to run of nobody, but say nothing to a reader.
fn without_chance(text: &str) -> String {
    for prefix in ["amq.gen-", "amq.ctag-", "amq.rabbitmq.reply-to."] {
        if let Some(at) = text.find(prefix) {
            let chance = at + prefix.len();
            if text.len() >= chance + 22 {
                return format!("{}<22>{}", &text[..chance], &text[chance + 22..]);
            }
        }
    }
    text.to_owned()
}
