//! Paths with a part that is `.` or `..`. Browsers and many HTTP clients take such a part out of a path before they send
//! it, quoted or not, so nobody could ask about a queue of that name. They leave the query alone: `/api/millrace/at` takes
//! the path there, and is answered as that path is.

use http::Uri;

use crate::reply::Problem;

/// Below `/api`. It is not in the table of routes: it stands for all of them.
pub(crate) const AT: &str = "/millrace/at";

/// What in the query is the path.
const PATH: &str = "path";

/// The address that is meant: the path that the query has, and the rest of the query.
pub(crate) fn meant(query: &str) -> Result<Uri, Problem> {
    let mut path = None;
    let mut rest = form_urlencoded::Serializer::new(String::new());
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        match path {
            None if name == PATH => path = Some(value.into_owned()),
            None | Some(_) => _ = rest.append_pair(&name, &value),
        }
    }
    let path = path.filter(|path| path.starts_with('/') && !path.contains(['?', '#']));
    let refused = || {
        Problem::bad(
            "path should be a path below /api, with its parts quoted, such as /queues/%2F/%2E%2E",
        )
    };
    let path = path.ok_or_else(refused)?;
    format!("/api{path}?{}", rest.finish()).parse().map_err(|_| refused())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meant_by(query: &str) -> Result<String, u16> {
        let meant = meant(query).map(|uri| uri.to_string());
        meant.map_err(|problem| problem.reply().status.as_u16())
    }

    #[test]
    fn the_path_is_in_the_query_and_the_rest_stays_the_query() {
        for (asked, meant) in [
            ("path=%2Fqueues%2F%252F%2F%252E%252E", "/api/queues/%2F/%2E%2E?"),
            ("path=/queues/%252F/..", "/api/queues/%2F/..?"),
            ("a=1&path=/queues/x/.&b=%26&path=2", "/api/queues/x/.?a=1&b=%26&path=2"),
        ] {
            assert_eq!(meant_by(asked), Ok(meant.to_owned()), "{asked}");
        }
    }

    #[test]
    fn what_is_no_path_is_refused() {
        for refused in ["", "path=", "path=queues", "path=/a?b", "path=/a%23b", "path=/a%20b"] {
            assert_eq!(meant_by(refused), Err(400), "{refused}");
        }
    }
}
