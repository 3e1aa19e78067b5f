//! The paths that a file names: `use crate::a::{b, c as d}`, and `super::a::f()` in an expression.
//!
//! It reads code in which comments and literals are blank. What a path leads to is for `modules`.

/// One path, as it stands in the file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) path: Vec<String>,
    /// The name that a `use` gives it in this file. A path in an expression gives none.
    pub(super) alias: Option<String>,
    pub(super) line: usize,
}

struct Token<'a> {
    text: &'a str,
    line: usize,
}

/// Every path in these lines that has two parts at least, and whatever a `use` imports.
pub(super) fn named<'a>(lines: impl Iterator<Item = (usize, &'a str)>) -> Vec<Named> {
    let tokens: Vec<Token> = lines.flat_map(|(line, text)| tokens(line, text)).collect();
    let mut named = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        at += match tokens[at].text {
            "use" => imports(&tokens[at..], &mut named),
            text if is_name(text) => expression(&tokens, at, &mut named),
            _ => 1,
        };
    }
    named
}

/// Names, `::` and single characters.
fn tokens(line: usize, text: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let bytes = match first {
            ':' if rest.starts_with("::") => 2,
            c if is_word(c) => rest.find(|c: char| !is_word(c)).unwrap_or(rest.len()),
            c => c.len_utf8(),
        };
        tokens.push(Token { text: &rest[..bytes], line });
        rest = rest[bytes..].trim_start();
    }
    tokens
}

/// Reads one `use` from its keyword to its semicolon, and says how many tokens that was.
fn imports(tokens: &[Token], named: &mut Vec<Named>) -> usize {
    let mut path: Vec<&str> = Vec::new();
    // How long the path was before each brace that is open.
    let mut opened = Vec::new();
    let mut alias = None;
    let mut is_after_as = false;
    for (index, Token { text, line }) in tokens.iter().enumerate().skip(1) {
        match *text {
            "{" => opened.push(path.len()),
            "," | "}" | ";" => {
                let begin = opened.last().copied().unwrap_or(0);
                if path.len() > begin {
                    named.extend(import(&path, alias.take(), *line));
                }
                path.truncate(begin);
                if *text == "}" {
                    opened.pop();
                    path.truncate(opened.last().copied().unwrap_or(0));
                }
            }
            "as" => is_after_as = true,
            name if is_name(name) && is_after_as => {
                alias = Some(name);
                is_after_as = false;
            }
            name if is_name(name) => path.push(name),
            _ => {}
        }
        if *text == ";" {
            return index + 1;
        }
    }
    tokens.len()
}

/// `self` at the end names the module that stands before it.
fn import(path: &[&str], alias: Option<&str>, line: usize) -> Option<Named> {
    let path = match path {
        [before @ .., "self"] if !before.is_empty() => before,
        path => path,
    };
    let alias = alias.or(path.last().copied()).map(String::from);
    let path: Vec<String> = path.iter().map(|part| part.to_string()).collect();
    (!path.is_empty()).then_some(Named { path, alias, line })
}

/// Reads a path that begins here, and says how many tokens it was.
fn expression(tokens: &[Token], at: usize, named: &mut Vec<Named>) -> usize {
    let mut path = vec![tokens[at].text];
    let mut end = at + 1;
    while let Some([Token { text: "::", .. }, Token { text, .. }]) = tokens.get(end..end + 2)
        && is_name(text)
    {
        path.push(text);
        end += 2;
    }
    // A part of a longer path (`<A as B>::c`), or what `pub(in crate::a)` opens to.
    let before = at.checked_sub(1).map_or("", |index| tokens[index].text);
    let is_visibility = before == "in" && at >= 2 && tokens[at - 2].text == "(";
    if path.len() > 1 && before != "::" && !is_visibility {
        let path = path.into_iter().map(String::from).collect();
        named.push(Named { path, alias: None, line: tokens[at].line });
    }
    end - at
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(code: &str) -> Vec<String> {
        let lines = code.lines().enumerate().map(|(index, line)| (index + 1, line));
        let show = |named: &Named| {
            let alias = named.alias.as_ref().map(|alias| format!(" as {alias}"));
            format!("{}:{}{}", named.line, named.path.join("::"), alias.unwrap_or_default())
        };
        named(lines).iter().map(show).collect()
    }

    #[test]
    fn a_use_names_all_that_stands_in_its_braces() {
        let code =
            "pub(crate) use crate::{\n    a::{self, B, c::D as E},\n    f::G,\n};\nuse super::H;";
        let expected = [
            "2:crate::a as a",
            "2:crate::a::B as B",
            "2:crate::a::c::D as E",
            "3:crate::f::G as G",
            "5:super::H as H",
        ];
        assert_eq!(paths(code), expected);
    }

    #[test]
    fn a_path_in_an_expression_is_named_without_an_alias() {
        let code = "fn f(x: super::A) { crate::b::c::<u8>(x) }";
        assert_eq!(paths(code), ["1:super::A", "1:crate::b::c"]);
    }

    #[test]
    fn what_a_visibility_names_is_no_import() {
        assert_eq!(paths("pub(in crate::a) fn f() {}\npub(super) fn g() {}"), [] as [&str; 0]);
    }
}
