//! `gen`: crates/amqp/spec/methods.toml -> crates/amqp/src/method/generated.rs; `settings`: the page of settings and
//! the example of the package.
//!
//! The table uses few of TOML's words, so the reader here is a few lines: tables of one or two names, and values
//! that stay on their line. The output goes through rustfmt, so that it reads like the rest.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::Outcome;
use crate::process::{cargo, run as run_command};

const TABLE: &str = "crates/amqp/spec/methods.toml";
const OUTPUT: &str = "crates/amqp/src/method/generated.rs";

/// Writes the generated file; with `check` only says whether it is stale.
pub(crate) fn run(check: bool) -> Result<(), String> {
    let root =
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("xtask has no parent folder")?;
    let (table, output) = (root.join(TABLE), root.join(OUTPUT));
    let text = std::fs::read_to_string(&table).map_err(|why| format!("{TABLE}: {why}"))?;
    let classes = parse(&text).map_err(|why| format!("{TABLE}: {why}"))?;
    let code = format_rust(&write_all(&classes)?, root)?;
    if std::fs::read_to_string(&output).is_ok_and(|current| current == code) {
        return Ok(());
    }
    if check {
        return Err(format!("{OUTPUT} is stale: run `cargo xtask gen`"));
    }
    std::fs::write(&output, code).map_err(|why| format!("{OUTPUT}: {why}"))
}

/// `cargo xtask settings`: docs/operating/settings.md and the package's example of a file, which a test of `millrace`
/// compares with its tables.
pub(crate) fn settings(_: &[String]) -> Outcome {
    let test = ["test", "-p", "millrace", "--bin", "millrace", "the_page_of_settings"];
    run_command(cargo(&test).env("MILLRACE_WRITE_SETTINGS", "1"))
}

#[derive(Default)]
struct Class {
    name: String,
    id: u16,
    methods: Vec<Method>,
}

#[derive(Default)]
struct Method {
    name: String,
    id: u16,
    doc: String,
    has_content: bool,
    fields: Vec<Field>,
}

struct Field {
    name: String,
    kind: String,
}

// ---- Reading the table ----

fn parse(text: &str) -> Result<Vec<Class>, String> {
    let mut classes: Vec<Class> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        parse_line(line.trim(), &mut classes)
            .map_err(|why| format!("line {}: {why}", index.saturating_add(1)))?;
    }
    Ok(classes)
}

fn parse_line(line: &str, classes: &mut Vec<Class>) -> Result<(), String> {
    if line.is_empty() || line.starts_with('#') {
        return Ok(());
    }
    if let Some(header) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        let Some((class, method)) = header.split_once('.') else {
            classes.push(Class { name: header.into(), ..Class::default() });
            return Ok(());
        };
        let last = classes.last_mut().filter(|last| last.name == class);
        let last = last.ok_or_else(|| format!("[{header}] is not below [{class}]"))?;
        last.methods.push(Method { name: method.into(), ..Method::default() });
        return Ok(());
    }
    let (key, value) = line.split_once(" = ").ok_or("expected `key = value`")?;
    let class = classes.last_mut().ok_or("a value before the first [class]")?;
    match (key, class.methods.last_mut()) {
        ("id", None) => class.id = number(value)?,
        ("id", Some(method)) => method.id = number(value)?,
        ("doc", Some(method)) => method.doc = string(value)?,
        ("content", Some(method)) => method.has_content = value == "true",
        ("fields", Some(method)) => method.fields = fields(value)?,
        _ => return Err(format!("unknown key {key}")),
    }
    Ok(())
}

fn number(value: &str) -> Result<u16, String> {
    value.parse().map_err(|_| format!("{value} is not a number up to 65535"))
}

fn string(value: &str) -> Result<String, String> {
    let inner = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    inner.map(str::to_owned).ok_or_else(|| format!("{value} is not a string"))
}

fn fields(value: &str) -> Result<Vec<Field>, String> {
    let list = value.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let list = list.ok_or_else(|| format!("{value} is not a list on one line"))?;
    let field = |item: &str| {
        let item = string(item.trim())?;
        let (name, kind) = item.split_once(": ").ok_or_else(|| format!("{item}: no type"))?;
        let name = if name == "type" { "kind".into() } else { name.replace('-', "_") };
        Ok(Field { name, kind: kind.into() })
    };
    list.split(',').map(field).collect()
}

// ---- Writing the code ----

/// What a type of the table is in Rust, how it is read, and how a value is written.
fn rust_type(kind: &str) -> Result<&'static str, String> {
    Ok(match kind {
        "u8" => "u8",
        "u16" => "u16",
        "u32" => "u32",
        "u64" => "u64",
        "bit" => "bool",
        "shortstr" | "name" => "&'a str",
        "longstr" | "secret" => "&'a [u8]",
        "table" => "TableRef<'a>",
        _ => return Err(format!("unknown type {kind}")),
    })
}

fn read_call(field: &Field) -> &str {
    match field.kind.as_str() {
        "secret" => "longstr",
        "shortstr" if field.is_reserved() => "shortstr_bytes",
        kind => kind,
    }
}

fn write_call(field: &Field) -> String {
    let Field { name, kind } = field;
    match (kind.as_str(), field.is_reserved()) {
        ("shortstr", true) => "out.put_u8(0);".into(),
        ("longstr", true) => "out.put_u32(0);".into(),
        (number, true) => format!("out.put_{number}(0);"),
        ("shortstr" | "name", false) => format!("put_shortstr(out, self.{name});"),
        ("longstr" | "secret", false) => format!("put_longstr(out, self.{name});"),
        ("table", false) => format!("put_table(out, self.{name});"),
        (number, false) => format!("out.put_{number}(self.{name});"),
    }
}

impl Field {
    fn is_reserved(&self) -> bool {
        self.name == "reserved"
    }
}

impl Method {
    fn kept(&self) -> impl Iterator<Item = &Field> {
        self.fields.iter().filter(|field| !field.is_reserved())
    }

    fn borrows(&self) -> bool {
        self.kept().any(|field| rust_type(&field.kind).is_ok_and(|name| name.contains('\'')))
    }

    fn has_secret(&self) -> bool {
        self.fields.iter().any(|field| field.kind == "secret")
    }

    fn type_name(&self) -> String {
        camel(&self.name)
    }

    /// Fields in groups: neighbouring bits share an octet, anything else stands alone.
    fn groups(&self) -> Vec<Vec<&Field>> {
        let mut groups: Vec<Vec<&Field>> = Vec::new();
        for field in &self.fields {
            match groups.last_mut() {
                Some(group) if field.kind == "bit" && group[0].kind == "bit" && group.len() < 8 => {
                    group.push(field);
                }
                _ => groups.push(vec![field]),
            }
        }
        groups
    }
}

fn camel(name: &str) -> String {
    let word = |word: &str| {
        let (first, rest) = word.split_at(1);
        first.to_uppercase() + rest
    };
    name.split('-').map(word).collect()
}

fn write_all(classes: &[Class]) -> Result<String, String> {
    let mut code = String::from(
        "//! One struct per method, and `Method`, which is any of them.\n//!\n\
         //! Generated from `spec/methods.toml` by `cargo xtask gen`. Do not edit: change the table.\n\n\
         use bytes::{BufMut, BytesMut};\n\n\
         use super::{refused, unknown_class, unknown_method};\n\
         use crate::error::Error;\nuse crate::reader::Reader;\n",
    );
    write_method_enum(&mut code, classes);
    for class in classes {
        write_class(&mut code, class)?;
    }
    Ok(code)
}

/// A row of `Method`: (variant, class, method).
fn rows(classes: &[Class]) -> impl Iterator<Item = (String, &Class, &Method)> {
    classes.iter().flat_map(|class| {
        class
            .methods
            .iter()
            .map(move |method| (camel(&class.name) + &method.type_name(), class, method))
    })
}

fn write_method_enum(code: &mut String, classes: &[Class]) {
    let mut variants = String::new();
    let (mut encode, mut ids, mut names) = (String::new(), String::new(), String::new());
    for (variant, class, method) in rows(classes) {
        let (module, name) = (&class.name, method.type_name());
        let lifetime = if method.borrows() { "<'a>" } else { "" };
        let _ = writeln!(variants, "{variant}({module}::{name}{lifetime}),");
        let held = if method.fields.is_empty() { "_" } else { "method" };
        let fields = if method.fields.is_empty() { "{}" } else { "method.encode(out)" };
        let _ = writeln!(encode, "Self::{variant}({held}) => {fields},");
        let _ = writeln!(ids, "Self::{variant}(_) => ({}, {}),", class.id, method.id);
        let _ = writeln!(names, "Self::{variant}(_) => \"{module}.{}\",", method.name);
    }
    let content: Vec<String> = rows(classes)
        .filter(|(_, _, method)| method.has_content)
        .map(|(variant, _, _)| format!("Self::{variant}(_)"))
        .collect();
    let content = content.join(" | ");
    let decode = write_decode(classes);
    let _ = write!(
        code,
        "\n/// Any method.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Method<'a> {{ {variants} }}

        impl<'a> Method<'a> {{
            /// Reads a method frame's payload: the ids of class and method, then the fields.
            ///
            /// # Errors
            /// 502 for fields that are malformed, missing or too many; 503 for an unknown class; 540 for an
            /// unknown method of a known class.
            #[inline]
            pub fn decode(payload: &'a [u8]) -> Result<Method<'a>, Error> {{
                let mut reader = Reader::new(payload);
                let ids = reader.u16().and_then(|class| Ok((class, reader.u16()?)));
                let (class, method) = ids.map_err(|fault| refused(\"method\", fault))?;
                {decode}
            }}

            /// Writes a method frame's payload. Of a short string over 255 bytes the part that fits is written.
            pub fn encode(&self, out: &mut BytesMut) {{
                let (class, method) = self.ids();
                out.put_u16(class);
                out.put_u16(method);
                match self {{ {encode} }}
            }}

            /// The ids of class and method.
            pub fn ids(&self) -> (u16, u16) {{ match self {{ {ids} }} }}

            /// The name in AMQP's words, such as `basic.publish`.
            pub fn name(&self) -> &'static str {{ match self {{ {names} }} }}

            /// Whether a content header follows.
            pub fn has_content(&self) -> bool {{ matches!(self, {content}) }}
        }}\n"
    );
}

/// The busiest methods are asked for first; then by class and method.
fn write_decode(classes: &[Class]) -> String {
    let mut by_class = String::new();
    for class in classes {
        let mut arms = String::new();
        for method in &class.methods {
            let (module, name) = (&class.name, method.type_name());
            let variant = camel(module) + &name;
            let read = if method.fields.is_empty() {
                format!("reader.finish().map(|()| Method::{variant}({module}::{name}))")
            } else {
                format!("{module}::{name}::decode(reader).map(Method::{variant})")
            };
            let _ = writeln!(
                arms,
                "{} => {read}.map_err(|fault| refused(\"{module}.{}\", fault)),",
                method.id, method.name
            );
        }
        let _ = writeln!(
            by_class,
            "{} => match method {{ {arms} _ => Err(unknown_method(\"{}\", method)), }},",
            class.id, class.name
        );
    }
    format!("match class {{ {by_class} _ => Err(unknown_class(class, method)), }}")
}

fn write_class(code: &mut String, class: &Class) -> Result<(), String> {
    let mut body = String::new();
    for method in &class.methods {
        write_method(&mut body, class, method).map_err(|why| format!("{}: {why}", method.name))?;
    }
    let mut uses = String::new();
    if body.contains("out.put_") {
        uses += "use bytes::BufMut;\n";
    }
    if body.contains("BytesMut") {
        uses += "use bytes::BytesMut;\n";
    }
    if body.contains("Fault") {
        uses += "use crate::error::Fault;\nuse crate::reader::Reader;\n";
    }
    if body.contains("TableRef") {
        uses += "use crate::field_table::TableRef;\n";
    }
    for (home, name) in
        [("field_table", "put_table"), ("writer", "put_longstr"), ("writer", "put_shortstr")]
    {
        if body.contains(name) {
            let _ = writeln!(uses, "use crate::{home}::{name};");
        }
    }
    let _ = write!(
        code,
        "\n/// Class `{}` ({}).\npub mod {} {{\n{uses}\n{body}}}\n",
        class.name, class.id, class.name
    );
    Ok(())
}

fn write_method(code: &mut String, class: &Class, method: &Method) -> Result<(), String> {
    let name = method.type_name();
    let lifetime = if method.borrows() { "<'a>" } else { "" };
    let debug = if method.has_secret() { "" } else { "Debug, " };
    let _ = writeln!(
        code,
        "/// `{}.{}`: {}\n#[derive({debug}Clone, Copy, Default, PartialEq, Eq)]",
        class.name, method.name, method.doc
    );
    if method.kept().next().is_none() {
        let _ = writeln!(code, "pub struct {name};\n");
    } else {
        let _ = writeln!(code, "pub struct {name}{lifetime} {{");
        for field in method.kept() {
            let _ = writeln!(code, "pub {}: {},", field.name, rust_type(&field.kind)?);
        }
        let _ = writeln!(code, "}}\n");
    }
    if method.has_secret() {
        write_debug(code, method);
    }
    if !method.fields.is_empty() {
        write_codec(code, method);
    }
    Ok(())
}

/// `Debug` without the secrets.
fn write_debug(code: &mut String, method: &Method) {
    let name = method.type_name();
    let _ = write!(
        code,
        "impl std::fmt::Debug for {name}<'_> {{
            fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {{
                out.debug_struct(\"{name}\")"
    );
    for field in method.kept() {
        let name = &field.name;
        if field.kind == "secret" {
            let _ = write!(code, ".field(\"{name}\", &\"(secret)\")");
        } else {
            let _ = write!(code, ".field(\"{name}\", &self.{name})");
        }
    }
    let _ = writeln!(code, ".finish()\n}}\n}}\n");
}

fn write_codec(code: &mut String, method: &Method) {
    let (mut reads, mut writes) = (String::new(), String::new());
    for group in method.groups() {
        if group[0].kind == "bit" {
            write_bits(&mut reads, &mut writes, &group);
            continue;
        }
        let field = group[0];
        let keep =
            if field.is_reserved() { String::new() } else { format!("let {} = ", field.name) };
        let _ = writeln!(reads, "{keep}reader.{}()?;", read_call(field));
        let _ = writeln!(writes, "{}", write_call(field));
    }
    let kept: Vec<&str> = method.kept().map(|field| field.name.as_str()).collect();
    let value =
        if kept.is_empty() { "Self".into() } else { format!("Self {{ {} }}", kept.join(", ")) };
    let (impl_lifetime, reader) =
        if method.borrows() { ("<'a>", "Reader<'a>") } else { ("", "Reader<'_>") };
    let name = method.type_name();
    let _ = writeln!(
        code,
        "impl{impl_lifetime} {name}{impl_lifetime} {{
            #[inline]
            pub(super) fn decode(mut reader: {reader}) -> Result<Self, Fault> {{
                {reads}reader.finish()?;
                Ok({value})
            }}

            #[inline]
            pub(super) fn encode(&self, out: &mut BytesMut) {{ {writes} }}
        }}\n"
    );
}

/// One octet for up to eight bits, the first in the lowest.
fn write_bits(reads: &mut String, writes: &mut String, group: &[&Field]) {
    let kept = || group.iter().enumerate().filter(|(_, field)| !field.is_reserved());
    if kept().next().is_none() {
        let _ = writeln!(reads, "reader.u8()?;");
        let _ = writeln!(writes, "out.put_u8(0);");
        return;
    }
    let _ = writeln!(reads, "let bits = reader.u8()?;");
    for (index, field) in kept() {
        let _ = writeln!(reads, "let {} = bits & {:#04x} != 0;", field.name, 1 << index);
    }
    let bit = |(index, field): (usize, &&Field)| {
        let octet = format!("u8::from(self.{})", field.name);
        if index == 0 { octet } else { format!("{octet} << {index}") }
    };
    let bits: Vec<String> = kept().map(bit).collect();
    let _ = writeln!(writes, "out.put_u8({});", bits.join(" | "));
}

fn format_rust(code: &str, root: &Path) -> Result<String, String> {
    let mut rustfmt = Command::new("rustfmt")
        .args(["--edition", "2024"])
        .current_dir(root)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|why| format!("rustfmt: {why}"))?;
    let mut input = rustfmt.stdin.take().ok_or("rustfmt has no input")?;
    input.write_all(code.as_bytes()).map_err(|why| format!("rustfmt: {why}"))?;
    drop(input);
    let output = rustfmt.wait_with_output().map_err(|why| format!("rustfmt: {why}"))?;
    if !output.status.success() {
        return Err("rustfmt refused the generated code".into());
    }
    String::from_utf8(output.stdout).map_err(|why| format!("rustfmt: {why}"))
}
