//! The API for programs that read OpenAPI: made from the table of routes that serves it, so it has every path that is
//! there, and no other. Sessions of browsers are not in that table, because nobody is known there yet; they are written
//! down in `logins`.

mod logins;

use http::Method;
use serde_json::{Map, Value, json};

use super::described::{DESCRIBED, Described, PARTS, QUERY};
use super::{ROUTES, Route, SESSION, SESSION_OAUTH};
use crate::access::Need;
use crate::asked::Asked;
use crate::at::AT;
use crate::node::View;
use crate::reply::Problem;
use crate::work::Work;

pub(super) fn openapi(_: &View<'_>, _: &Asked) -> Result<Work, Problem> {
    Ok(Work::answer(document(ROUTES)))
}

fn document(routes: &[Route]) -> Value {
    let mut paths = Map::new();
    for route in routes {
        let methods = paths.entry(route.path.to_owned()).or_insert_with(|| json!({}));
        methods[route.method.as_str().to_ascii_lowercase()] = operation(route);
    }
    paths.insert(SESSION.to_owned(), logins::session());
    paths.insert(SESSION_OAUTH.to_owned(), logins::code_login());
    paths.insert(AT.to_owned(), at());
    json!({
        "openapi": "3.0.3",
        "info": {
            "title": "Millrace",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "RabbitMQ's management API (release 3.10), and Millrace's own below /millrace.",
        },
        "servers": [{ "url": "/api" }],
        "security": [{ "basic": [] }, { "bearer": [] }, { "session": [] }],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "basic": { "type": "http", "scheme": "basic" },
                "bearer": { "type": "http", "scheme": "bearer" },
                "session": {
                    "type": "apiKey",
                    "in": "cookie",
                    "name": "millrace_session_PORT",
                    "description": "PORT is that of the node's HTTP API. Every request but GET and HEAD also needs the \
                                    header x-millrace-csrf.",
                },
            },
            "schemas": {
                "Error": {
                    "type": "object",
                    "properties": {
                        "error": { "type": "string" },
                        "reason": { "type": "string" },
                    },
                },
            },
        },
    })
}

/// The path that stands for each of them.
fn at() -> Value {
    let path = json!({
        "name": "path", "in": "query", "required": true, "schema": { "type": "string" },
        "description": "below /api, with its parts quoted: /queues/%2F/%2E%2E",
    });
    let operation = json!({
        "summary": "asks at a path that clients change before they send it: one with a part that is . or ..",
        "description": "Any method, and all else as of that path.",
        "parameters": [path],
        "responses": { "default": { "description": "as of that path" } },
    });
    json!({ "get": operation, "put": operation, "post": operation, "delete": operation })
}

fn describe(route: &Route) -> Option<&'static Described> {
    DESCRIBED.iter().find(|it| it.method == route.method.as_str() && it.path == route.path)
}

fn operation(route: &Route) -> Value {
    let (summary, query) = describe(route).map_or(("", &[][..]), |it| (it.summary, it.query));
    let parts = parts(route.path).map(|name| {
        let text = meaning(PARTS, name);
        json!({
            "name": name, "in": "path", "required": true, "description": text,
            "schema": { "type": "string" },
        })
    });
    let query = query.iter().map(|name| {
        let text = meaning(QUERY, name);
        json!({
            "name": name, "in": "query", "required": false, "description": text,
            "schema": { "type": "string" },
        })
    });
    let mut operation = json!({
        "summary": summary,
        "description": format!("Needs {}.", needs(route.need)),
        "parameters": parts.chain(query).collect::<Vec<Value>>(),
        "responses": responses(route),
    });
    if matches!(route.method, Method::PUT | Method::POST) {
        let content = json!({ "application/json": { "schema": { "type": "object" } } });
        operation["requestBody"] = json!({ "required": false, "content": content });
    }
    operation
}

fn meaning(table: &[(&str, &'static str)], name: &str) -> &'static str {
    table.iter().find(|(known, _)| *known == name).map_or("", |(_, text)| text)
}

/// The variable parts of a path.
fn parts(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
}

/// Who may.
fn needs(need: Need) -> &'static str {
    match need {
        Need::User => "one of the tags management, policymaker, monitoring, administrator or peek",
        Need::Visible => "permissions in the vhost, or the tag monitoring or administrator",
        Need::Vhost => "permissions in the vhost, or the tag administrator",
        Need::Policies => {
            "the tag policymaker and permissions in the vhost, or the tag administrator"
        }
        Need::Peek => {
            "the tag peek and permission to read from the queue, or the tag administrator"
        }
        Need::Monitor => "the tag monitoring or administrator",
        Need::Administrator => "the tag administrator",
    }
}

fn responses(route: &Route) -> Value {
    let mut responses = Map::new();
    let mut add = |status: &str, text: &str| {
        let is_error = status.starts_with(['4', '5']);
        let mut response = json!({ "description": text });
        if is_error {
            response["content"]["application/json"]["schema"]["$ref"] =
                "#/components/schemas/Error".into();
        }
        responses.insert(status.to_owned(), response);
    };
    match route.method {
        Method::PUT => {
            add("201", "made");
            add("204", "changed, or it was so already");
        }
        Method::DELETE if route.path.ends_with("/contents") => {
            add("200", "purged so that it can be undone: how many messages, and until when");
            add("204", "purged");
        }
        Method::DELETE => add("204", "deleted"),
        _ if route.path.ends_with("/live") => {
            add("200", "server-sent events");
        }
        _ => add("200", "the answer"),
    }
    if route.method == Method::POST {
        add("201", "made");
        add("204", "done");
    }
    if route.path.contains("/locks/{vhost}/") {
        add("409", "the lock is held by another, or not by you, or the value has another version");
    }
    add("400", "the request is wrong, or what it asks for is refused: why");
    add("401", "the login is wrong, or its user may not");
    add("404", "there is no such thing");
    if route.method != Method::GET {
        add("413", "the body is too large");
    }
    add("503", "the cluster cannot do it now, or a check has failed: why");
    Value::Object(responses)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_route_is_described_and_nothing_else_is() {
        let served: BTreeSet<(&str, &str)> =
            ROUTES.iter().map(|route| (route.method.as_str(), route.path)).collect();
        let described: BTreeSet<(&str, &str)> =
            DESCRIBED.iter().map(|it| (it.method, it.path)).collect();
        assert_eq!(served, described, "routes/described.rs has a row for each route");
        assert_eq!(DESCRIBED.len(), described.len(), "and one alone");
        for Described { path, summary, query, .. } in DESCRIBED {
            assert!(!summary.is_empty(), "{path}");
            for name in parts(path) {
                assert!(!meaning(PARTS, name).is_empty(), "{path}: {name}");
            }
            for name in *query {
                assert!(!meaning(QUERY, name).is_empty(), "{path}: {name}");
            }
        }
    }

    #[test]
    fn the_document_has_each_path_with_its_methods_parts_and_who_may() {
        let document = document(ROUTES);
        let mut count = 0;
        for (path, methods) in document["paths"].as_object().unwrap() {
            if path == SESSION {
                let methods: Vec<&String> = methods.as_object().unwrap().keys().collect();
                assert_eq!(methods, ["delete", "get", "post"]);
                continue;
            }
            if path == SESSION_OAUTH {
                let methods: Vec<&String> = methods.as_object().unwrap().keys().collect();
                assert_eq!(methods, ["get", "post"]);
                continue;
            }
            if path == AT {
                assert_eq!(methods.as_object().unwrap().len(), 4);
                continue;
            }
            for (method, operation) in methods.as_object().unwrap() {
                count += 1;
                let route = ROUTES.iter().find(|route| {
                    route.path == path && route.method.as_str().eq_ignore_ascii_case(method)
                });
                let route = route.unwrap();
                let description = operation["description"].as_str().unwrap();
                assert!(description.contains(needs(route.need)), "{method} {path}");
                let in_path = operation["parameters"].as_array().unwrap().iter();
                let in_path = in_path.filter(|it| it["in"] == "path").count();
                assert_eq!(in_path, parts(path).count(), "{method} {path}");
            }
        }
        assert_eq!(count, ROUTES.len());
    }
}
