//! The little JSON that reports need: strings out, numbers in.

/// `text` as a JSON string.
pub(crate) fn quote(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            c if u32::from(c) < 0x20 => quoted.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// The first number behind these keys, each looked for behind the one before.
pub(crate) fn number(text: &str, path: &[&str]) -> Option<f64> {
    word(text, path)?.parse().ok()
}

/// The first number or word without quotes behind these keys: `1.5`, `true`.
pub(crate) fn word<'a>(text: &'a str, path: &[&str]) -> Option<&'a str> {
    let rest = behind(text, path)?;
    let end = rest.find([',', '}', ']']).unwrap_or(rest.len());
    Some(rest[..end].trim())
}

/// The first string behind these keys. One with an escape in it is none.
pub(crate) fn string<'a>(text: &'a str, path: &[&str]) -> Option<&'a str> {
    let (string, _) = behind(text, path)?.strip_prefix('"')?.split_once('"')?;
    (!string.contains('\\')).then_some(string)
}

fn behind<'a>(text: &'a str, path: &[&str]) -> Option<&'a str> {
    let mut rest = text;
    for key in path {
        rest = rest.split_once(&format!("\"{key}\":"))?.1;
    }
    Some(rest.trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_found_below_its_keys() {
        let text = r#"{"a":{"p50":1},"b":{"p50":2.5},"c":null}"#;
        assert_eq!(number(text, &["b", "p50"]), Some(2.5));
        assert_eq!(number(text, &["c"]), None);
    }

    #[test]
    fn words_and_strings_are_told_apart() {
        let text = r#"{"a":"x y","b":true,"c":null,"d":"\\"}"#;
        assert_eq!(string(text, &["a"]), Some("x y"));
        assert_eq!(word(text, &["b"]), Some("true"));
        assert_eq!((string(text, &["c"]), string(text, &["d"])), (None, None));
    }

    #[test]
    fn what_json_cannot_hold_is_escaped() {
        assert_eq!(quote("a\"b\\c\n\u{1}"), "\"a\\\"b\\\\c\\n\\u0001\"");
    }
}
