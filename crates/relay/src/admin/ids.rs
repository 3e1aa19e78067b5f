//! Ids that are kept as text, back among the rows they belong to.
//!
//! What failed is remembered by the text of its id. A row without an id left the empty text, and a table may have
//! had another type of id when something failed: neither may make a statement fail for all the others.

/// `text` as the id's type, NULL where it is none; an index finds it. None: of this type nothing is known.
fn guarded(kind: &str, text: &str) -> Option<String> {
    let digits = |least: &str, most: &str| {
        format!(
            "CASE WHEN {text} ~ '^-?[0-9]{{1,19}}$' THEN CASE WHEN {text}::numeric BETWEEN {least} AND {most} \
             THEN {text}::{kind} END END"
        )
    };
    match kind {
        "uuid" => Some(format!(
            "CASE WHEN {text} ~* '^[0-9a-f]{{8}}(-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}$' THEN {text}::uuid END"
        )),
        "bigint" => Some(digits("-9223372036854775808", "9223372036854775807")),
        "integer" => Some(digits("-2147483648", "2147483647")),
        "smallint" => Some(digits("-32768", "32767")),
        "text" => Some(text.to_owned()),
        _ if kind.starts_with("character varying") => Some(text.to_owned()),
        _ => None,
    }
}

/// Whether the id in `column`, of type `kind`, is the one that the expression `text` says.
pub(crate) fn is_id(column: &str, kind: &str, text: &str) -> String {
    match guarded(kind, text) {
        Some(id) => format!("{column} = {id}"),
        // Reads all of the table, and is right for every type.
        None => format!("{column}::text = {text}"),
    }
}

/// Whether the id in `column`, of type `kind`, is among the texts of the parameter `texts`.
pub(crate) fn is_among(column: &str, kind: &str, texts: &str) -> String {
    match guarded(kind, "i.id") {
        Some(id) => {
            format!("{column} = ANY(ARRAY(SELECT {id} FROM unnest({texts}::text[]) AS i(id)))")
        }
        None => format!("{column}::text = ANY({texts}::text[])"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_cast_only_where_it_is_known_to_fit() {
        assert!(is_id("o.id", "uuid", "f.row_id").starts_with("o.id = CASE WHEN f.row_id ~*"));
        assert_eq!(is_id("o.id", "text", "f.row_id"), "o.id = f.row_id");
        assert_eq!(is_id("o.id", "timestamp", "f.row_id"), "o.id::text = f.row_id");
        assert_eq!(is_among("o.id", "numeric", "$2"), "o.id::text = ANY($2::text[])");
        let among = is_among("o.id", "bigint", "$2");
        assert!(
            among.contains("FROM unnest($2::text[])") && among.contains("::bigint END"),
            "{among}"
        );
    }
}
