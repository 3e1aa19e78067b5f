//! A URL with fields that a job fills: in the path and the query, never in the host.

use std::fmt::Write;

use http::Uri;

use crate::address;
use crate::job::Message;

/// Longest URL.
const URL_BYTES_MAX: usize = 8192;

/// A URL with fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    pieces: Vec<Piece>,
    /// Without a field: made once.
    fixed: Option<Uri>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Type,
    Id,
    Header(String),
}

impl Template {
    /// Reads `https://host/path/{type}?x={header:NAME}`.
    ///
    /// # Errors
    /// In words: no http or https URL, a field in the host, an unknown field, a user or a password.
    pub fn parse(text: &str) -> Result<Self, String> {
        let pieces = pieces(text)?;
        let start = text.find("://").map_or(0, |at| at + 3);
        let end = text[start..].find(['/', '?', '#']).map_or(text.len(), |at| start + at);
        if text[..end].contains('{') {
            return Err("url: fields may stand in the path and the query, not in the host".into());
        }
        if text.contains('#') {
            return Err("url: a part after # is never sent".into());
        }
        let probe: String = pieces.iter().map(|piece| piece.text().unwrap_or("x")).collect();
        let url = uri(&probe)?;
        let fixed = pieces.iter().all(|piece| piece.text().is_some()).then_some(url);
        Ok(Self { pieces, fixed })
    }

    /// The URL, if no field is in it.
    pub fn without_fields(&self) -> Option<Uri> {
        self.fixed.clone()
    }

    /// The URL for a job.
    ///
    /// # Errors
    /// In words: the job lacks what a field names, or its value would lead to another path.
    pub fn fill(&self, job: &Message) -> Result<Uri, String> {
        if let Some(fixed) = &self.fixed {
            return Ok(fixed.clone());
        }
        let mut url = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => url.push_str(text),
                Piece::Type => encode(&mut url, "type", &job.kind)?,
                Piece::Id => encode(&mut url, "id", &job.id)?,
                Piece::Header(name) => {
                    let found = job.headers.iter().find(|h| h.name.eq_ignore_ascii_case(name));
                    encode(&mut url, name, found.map_or("", |header| header.value.as_str()))?;
                }
            }
        }
        uri(&url)
    }
}

impl Piece {
    fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Type | Self::Id | Self::Header(_) => None,
        }
    }
}

fn pieces(text: &str) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        let (field, after) = after.split_once('}').ok_or("url: a { has no }")?;
        pieces.push(Piece::Text(before.to_owned()));
        pieces.push(match (field, field.strip_prefix("header:")) {
            ("type", _) => Piece::Type,
            ("id", _) => Piece::Id,
            (_, Some(name)) if !name.is_empty() => Piece::Header(name.to_owned()),
            (_, _) => {
                let known = "{type}, {id} or {header:NAME}";
                return Err(format!("url: the field `{field}` is none of {known}"));
            }
        });
        rest = after;
    }
    pieces.push(Piece::Text(rest.to_owned()));
    Ok(pieces)
}

/// Writes a value so that it stays one part of a path or a query.
fn encode(url: &mut String, what: &str, value: &str) -> Result<(), String> {
    if value.is_empty() {
        return Err(format!("the job has no {what}, which the URL needs"));
    }
    if value == "." || value == ".." {
        return Err(format!("the job's {what} is `{value}`, which would lead to another path"));
    }
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            url.push(char::from(byte));
        } else {
            write!(url, "%{byte:02X}").expect("a String takes everything");
        }
    }
    Ok(())
}

fn uri(text: &str) -> Result<Uri, String> {
    if text.len() > URL_BYTES_MAX {
        return Err(format!("url: longer than {URL_BYTES_MAX} bytes"));
    }
    let url: Uri = text.parse().map_err(|error| format!("url: {error}"))?;
    if !matches!(url.scheme_str(), Some("http" | "https")) {
        return Err("url: it must begin with http:// or https://".into());
    }
    let authority = url.authority().map_or("", |authority| authority.as_str());
    if authority.contains('@') {
        return Err("url: a user or a password in it would be seen in logs; use a header".into());
    }
    address::host(url.host().unwrap_or("")).map_err(|why| format!("url: {why}"))?;
    Ok(url)
}
