//! How browsers log in and out, as the document describes it: these paths are not in the table of routes.

use serde_json::{Value, json};

/// How browsers log in and out.
pub(super) fn session() -> Value {
    let text = |text: &str| json!({ "type": "string", "description": text });
    let login = json!({
        "type": "object",
        "properties": {
            "username": text("with password: a user of the broker"),
            "password": text("of the user"),
            "token": text("in place of both: a token of OAuth 2"),
            "code": text("in place of all: what an identity server gave, with state and redirect_uri"),
            "state": text("as the browser came back with it"),
            "redirect_uri": text("where it came back to"),
        },
    });
    let known = json!({
        "type": "object",
        "properties": {
            "user": text("who has logged in"),
            "tags": { "type": "array", "items": { "type": "string" } },
            "csrf": text("goes into the header x-millrace-csrf of every request but GET and HEAD"),
            "permissions": { "type": "object", "description": "by vhost; without a token" },
        },
    });
    let well = json!({
        "description": "who has logged in",
        "content": { "application/json": { "schema": known } },
    });
    let error = |text: &str| {
        let schema = json!({ "$ref": "#/components/schemas/Error" });
        json!({ "description": text, "content": { "application/json": { "schema": schema } } })
    };
    let csrf = json!({
        "name": "x-millrace-csrf", "in": "header", "required": true,
        "description": "as the login answered", "schema": { "type": "string" },
    });
    json!({
        "post": {
            "summary": "log in: sets a cookie (HttpOnly, SameSite=Strict)",
            "description": "Needs a user or a token that may use the API, in the body.",
            "security": [],
            "parameters": [],
            "requestBody": {
                "required": true,
                "content": { "application/json": { "schema": login } },
            },
            "responses": {
                "200": well,
                "400": error("the body is no login"),
                "401": error("the login is wrong, or its user may not use the API"),
                "413": error("the body is too large"),
                "429": error("too many wrong passwords came from this address: wait"),
            },
        },
        "get": {
            "summary": "who has logged in",
            "description": "Needs the cookie of a session.",
            "security": [{ "session": [] }],
            "parameters": [],
            "responses": { "200": well, "401": error("nobody has, or the session is over") },
        },
        "delete": {
            "summary": "log out",
            "description": "Needs the cookie of a session.",
            "security": [{ "session": [] }],
            "parameters": [csrf],
            "responses": {
                "204": { "description": "the session is over" },
                "401": error("there was none"),
                "403": error("the header x-millrace-csrf is missing or wrong"),
            },
        },
    })
}

/// A login at an identity server: whether there is one, and how it begins.
pub(super) fn code_login() -> Value {
    let told = |name: &str, text: &str| {
        let schema = json!({
            "type": "object",
            "properties": { name: { "type": "string", "description": text } },
        });
        json!({ "description": text, "content": { "application/json": { "schema": schema } } })
    };
    let asked = json!({
        "type": "object",
        "properties": {
            "redirect_uri": { "type": "string", "description": "where the browser is to come back to" },
        },
    });
    json!({
        "get": {
            "summary": "whether browsers can log in at an identity server",
            "description": "Needs nobody.",
            "security": [],
            "parameters": [],
            "responses": { "200": told("host", "the server's host, or null") },
        },
        "post": {
            "summary": "begin a login at the identity server: sets a cookie for its end",
            "description": "Needs nobody. The browser goes to `place`, and what it comes back with is sent to \
                            /millrace/session.",
            "security": [],
            "parameters": [],
            "requestBody": {
                "required": true,
                "content": { "application/json": { "schema": asked } },
            },
            "responses": {
                "200": told("place", "where the browser is sent"),
                "404": { "description": "no identity server is set" },
            },
        },
    })
}
