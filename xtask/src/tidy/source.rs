//! One Rust file as tidy sees it: its text, and its code with comments and strings blanked out.
//!
//! This is a scanner, not a parser: it knows comments, literals and braces, and nothing else.

use std::path::PathBuf;

pub(super) struct Source {
    pub(super) path: PathBuf,
    pub(super) text: String,
    /// Under `tests/` or `benches/`, or named `tests.rs`.
    pub(super) is_test: bool,
    /// As long as `text`, line for line, without what stands in comments and literals.
    code: String,
    /// Lines before the file's own tests.
    product_line_count: usize,
}

pub(super) struct Function {
    pub(super) name: String,
    pub(super) line: usize,
    pub(super) lines: usize,
}

impl Source {
    pub(super) fn new(path: PathBuf, text: String) -> Source {
        let code = blank(&text);
        let mut product_line_count = code.lines().count();
        let mut previous = "";
        for (index, line) in code.lines().enumerate() {
            if previous == "#[cfg(test)]" && line.starts_with("mod ") && line.ends_with('{') {
                product_line_count = index - 1;
                break;
            }
            previous = line;
        }
        let shown = path.to_string_lossy();
        let folders = ["/tests/", "/benches/"];
        let is_test =
            folders.iter().any(|folder| shown.contains(folder)) || shown.ends_with("/tests.rs");
        Source { is_test, path, text, code, product_line_count }
    }

    /// Lines of code by number, counted from 1.
    pub(super) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.code.lines().enumerate().map(|(index, line)| (index + 1, line))
    }

    /// The lines before the file's own tests.
    pub(super) fn product_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.lines().take(self.product_line_count)
    }

    /// The comment on the line above this one, if there is one.
    pub(super) fn comment_above(&self, number: usize) -> &str {
        let above = number.checked_sub(2).and_then(|index| self.text.lines().nth(index));
        above.map(str::trim).filter(|line| line.starts_with("//")).unwrap_or_default()
    }

    /// Whether this is a place where the world is touched: invariant I1 lists them.
    pub(super) fn may_do_io(&self) -> bool {
        let path = self.path.to_string_lossy();
        let is_tool = ["xtask/", "examples/", "trials/", "crates/millrace/"];
        path.contains("/src/io/")
            || path.ends_with("/src/io.rs")
            || path.contains("/examples/")
            || is_tool.iter().any(|folder| path.starts_with(folder))
    }

    /// Every function with a body, tests left out.
    pub(super) fn functions(&self) -> impl Iterator<Item = Function> {
        let lines: Vec<&str> = if self.is_test {
            Vec::new()
        } else {
            self.product_lines().map(|(_, line)| line).collect()
        };
        let mut functions = Vec::new();
        for (index, line) in lines.iter().enumerate() {
            let Some(name) = function_name(line) else { continue };
            let indent = line.len() - line.trim_start().len();
            // rustfmt closes a body at the indent of its `fn`.
            let close = format!("{:indent$}}}", "");
            let end = lines[index..].iter().position(|line| *line == close || line.ends_with("{}"));
            if let Some(end) = end {
                functions.push(Function { name: name.into(), line: index + 1, lines: end + 1 });
            }
        }
        functions.into_iter()
    }
}

#[cfg(test)]
impl Source {
    /// Files of the package `crates/a`: paths below `src` without their ends, and texts.
    pub(super) fn samples(files: &[(&str, &str)]) -> Vec<Source> {
        let source = |(path, text): &(&str, &str)| {
            Source::new(format!("crates/a/src/{path}.rs").into(), text.to_string())
        };
        files.iter().map(source).collect()
    }
}

fn function_name(line: &str) -> Option<&str> {
    let (before, after) = line.split_once("fn ")?;
    let is_item = before.split_whitespace().all(|word| {
        word.starts_with("pub") || ["const", "async", "extern", "in", "super)"].contains(&word)
    });
    let end = after.find(|c: char| !c.is_alphanumeric() && c != '_')?;
    (is_item && end > 0 && !line.trim_end().ends_with(';')).then(|| &after[..end])
}

/// `text` with comments and the inside of literals as spaces; line breaks stay.
fn blank(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    let mut previous = ' ';
    while let Some(first) = rest.chars().next() {
        let skipped = match first {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => block_comment_bytes(rest),
            '"' => quoted_bytes(rest, '"'),
            'r' if !is_word(previous) => raw_string_bytes(rest),
            '\'' => char_bytes(rest),
            _ => 0,
        };
        if skipped == 0 {
            code.push(first);
            previous = first;
            rest = &rest[first.len_utf8()..];
        } else {
            let (gone, after) = rest.split_at(skipped);
            code.extend(gone.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
            previous = ' ';
            rest = after;
        }
    }
    // Trailing blanks would hide that a line ends with a brace.
    code.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn block_comment_bytes(rest: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < rest.len() {
        if rest[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += rest[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    rest.len()
}

fn quoted_bytes(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// 0 if this is no raw string: `r` begins many words.
fn raw_string_bytes(rest: &str) -> usize {
    let hashes = rest[1..].chars().take_while(|c| *c == '#').count();
    if !rest[1 + hashes..].starts_with('"') {
        return 0;
    }
    let close = format!("\"{}", "#".repeat(hashes));
    let begin = hashes + 2;
    rest[begin..].find(&close).map_or(rest.len(), |at| begin + at + close.len())
}

/// 0 if this is a lifetime.
fn char_bytes(rest: &str) -> usize {
    let mut chars = rest.chars().skip(1);
    match (chars.next(), chars.next()) {
        (Some('\\'), _) => quoted_bytes(rest, '\''),
        (Some(c), Some('\'')) => c.len_utf8() + 2,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_and_comments_are_blank_and_lifetimes_are_not() {
        let text = "let a: &'static str = r#\"x\"y\"#; /* b /* c */ d */ let e = '\\''; // f";
        let words: Vec<String> = blank(text).split_whitespace().map(String::from).collect();
        assert_eq!(words.join(" "), "let a: &'static str = ; let e = ;");
    }

    #[test]
    fn a_function_is_as_long_as_its_lines() {
        let text = "//! C.\nimpl A {\n    pub(crate) fn go(\n        x: u8,\n    ) {\n        x;\n    }\n}\n";
        let source = Source::new("crates/a/src/b.rs".into(), text.into());
        let functions: Vec<_> = source.functions().map(|f| (f.name, f.line, f.lines)).collect();
        assert_eq!(functions, [("go".to_string(), 3, 5)]);
    }
}
