//! Exchange and routing key from columns: `outbox.event.{aggregatetype}`.

use std::fmt;
use std::str::FromStr;

/// Literal text and names of columns. `{{` and `}}` stand for braces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Template(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Literal(String),
    Column(String),
}

/// Why a text is not a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadTemplate(String);

impl fmt::Display for BadTemplate {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{} (a template reads orders.{{column}}; write a brace as {{{{ or }}}})",
            self.0
        )
    }
}

impl std::error::Error for BadTemplate {}

impl Template {
    /// A text without columns.
    pub fn literal(text: impl Into<String>) -> Self {
        let text = text.into();
        if text.is_empty() { Self::default() } else { Self(vec![Part::Literal(text)]) }
    }

    /// The columns it names, in order, repeated as often as it does.
    pub fn columns(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|part| match part {
            Part::Column(name) => Some(name.as_str()),
            Part::Literal(_) => None,
        })
    }

    /// Appends the text to `out`.
    ///
    /// # Errors
    /// The name of a column for which `value` has nothing.
    pub fn render<'v>(
        &self,
        out: &mut String,
        mut value: impl FnMut(&str) -> Option<&'v str>,
    ) -> Result<(), &str> {
        for part in &self.0 {
            match part {
                Part::Literal(text) => out.push_str(text),
                Part::Column(name) => out.push_str(value(name).ok_or(name.as_str())?),
            }
        }
        Ok(())
    }
}

impl FromStr for Template {
    type Err = BadTemplate;

    fn from_str(text: &str) -> Result<Self, BadTemplate> {
        let mut parts = Vec::new();
        let mut literal = String::new();
        let mut rest = text.chars().peekable();
        while let Some(next) = rest.next() {
            match next {
                '{' | '}' if rest.peek() == Some(&next) => {
                    rest.next();
                    literal.push(next);
                }
                '{' => {
                    let mut name = String::new();
                    loop {
                        match rest.next() {
                            Some('}') => break,
                            Some(c) => name.push(c),
                            None => return Err(BadTemplate(format!("`{text}` lacks a `}}`"))),
                        }
                    }
                    if name.is_empty() {
                        return Err(BadTemplate(format!("`{text}` has `{{}}` without a column")));
                    }
                    if !literal.is_empty() {
                        parts.push(Part::Literal(std::mem::take(&mut literal)));
                    }
                    parts.push(Part::Column(name));
                }
                '}' => return Err(BadTemplate(format!("`{text}` has a `}}` without its `{{`"))),
                c => literal.push(c),
            }
        }
        if !literal.is_empty() {
            parts.push(Part::Literal(literal));
        }
        Ok(Self(parts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(template: &str) -> Result<String, String> {
        let template: Template =
            template.parse().map_err(|error: BadTemplate| error.to_string())?;
        let mut out = String::new();
        let value = |name: &str| match name {
            "type" => Some("order.paid"),
            "tenant" => Some("7"),
            _ => None,
        };
        template.render(&mut out, value).map_err(str::to_owned)?;
        Ok(out)
    }

    #[test]
    fn columns_are_filled_in_and_the_rest_stays() {
        assert_eq!(rendered("a.{type}.{tenant}b"), Ok("a.order.paid.7b".into()));
        assert_eq!(rendered("plain"), Ok("plain".into()));
        assert_eq!(rendered(""), Ok(String::new()));
        assert_eq!(rendered("{{{type}}}"), Ok("{order.paid}".into()));
    }

    #[test]
    fn a_column_without_a_value_is_named() {
        assert_eq!(rendered("{type}-{other}"), Err("other".into()));
    }

    #[test]
    fn braces_that_do_not_match_are_refused() {
        for bad in ["{type", "type}", "{}", "a{b}c}"] {
            assert!(rendered(bad).is_err_and(|why| why.contains(bad)), "{bad}");
        }
    }
}
