//! Definitions: what a broker is made of, without its messages; written out, and brought in.

use broker::operator::{NewBinding, NewExchange, NewQueue};
use machine::{CatalogCommand, PolicyKind, Vhost};
use serde_json::{Map, Value, json};

use super::{bindings, exchanges, overview, permissions, policies, queues, users, vhosts};
use crate::arguments;
use crate::asked::{Asked, Body};
use crate::import::Import;
use crate::node::View;
use crate::reply::Problem;
use crate::work::Work;

/// What a parameter is that is an operator's policy.
const OPERATOR_POLICY: &str = "operator_policy";

pub(super) fn export(view: &View<'_>, _: &Asked) -> Result<Work, Problem> {
    let catalog = view.catalog;
    let all: Vec<&Vhost> = catalog.vhosts().collect();
    let vhosts: Vec<Value> = all.iter().map(|vhost| json!({ "name": vhost.name() })).collect();
    let users: Vec<Value> = catalog.users().map(users::shown).collect();
    let permissions: Vec<Value> = catalog.users().flat_map(permissions::of).collect();
    let name = view.facts.name();
    let mut body = json!({
        "rabbit_version": overview::RABBITMQ_VERSION,
        "rabbitmq_version": overview::RABBITMQ_VERSION,
        "product_name": "Millrace",
        "product_version": env!("CARGO_PKG_VERSION"),
        "original_cluster_name": name,
        "users": users,
        "vhosts": vhosts,
        "permissions": permissions,
        "topic_permissions": [],
        "global_parameters": [],
    });
    if let Value::Object(fields) = &mut body {
        fields.extend(parts_of(&all, true));
    }
    Ok(Work::answer(body))
}

pub(super) fn export_vhost(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let vhost = view.catalog.vhost(asked.vhost()).ok_or(Problem::NotFound)?;
    let mut fields = parts_of(&[vhost], false);
    fields.insert("rabbit_version".to_owned(), overview::RABBITMQ_VERSION.into());
    Ok(Work::answer(Value::Object(fields)))
}

/// What is durable in these vhosts, each with its vhost's name if there may be several.
fn parts_of(vhosts: &[&Vhost], names_vhost: bool) -> Map<String, Value> {
    let tidy = |mut item: Value| {
        if let Value::Object(fields) = &mut item
            && !names_vhost
        {
            fields.remove("vhost");
        }
        item
    };
    let mut parts = Map::new();
    let queues = vhosts.iter().flat_map(|vhost| {
        vhost.queues().filter(|queue| queue.durable && queue.exclusive.is_none())
    });
    parts.insert("queues".to_owned(), queues.map(|it| tidy(queues::defined(it))).collect());
    let exchanges = vhosts.iter().flat_map(|vhost| {
        let own = vhost.exchanges().filter(|exchange| {
            exchange.durable && !exchange.name.is_empty() && !exchange.name.starts_with("amq.")
        });
        own.map(|exchange| exchanges::shown(vhost.name(), exchange))
    });
    parts.insert("exchanges".to_owned(), exchanges.map(tidy).collect());
    let policies = vhosts.iter().flat_map(|vhost| policies::of(vhost, PolicyKind::User));
    parts.insert("policies".to_owned(), policies.map(tidy).collect());
    let operators = vhosts.iter().flat_map(|vhost| policies::of(vhost, PolicyKind::Operator));
    parts.insert("parameters".to_owned(), operators.map(parameter).map(tidy).collect());
    let bindings = vhosts.iter().flat_map(|vhost| bindings::defined(vhost));
    parts.insert("bindings".to_owned(), bindings.map(tidy).collect());
    parts
}

/// RabbitMQ's definitions have operators' policies among the parameters.
fn parameter(mut policy: Value) -> Value {
    let mut value = Map::new();
    if let Value::Object(fields) = &mut policy {
        for field in ["pattern", "apply-to", "definition", "priority"] {
            value.extend(fields.remove_entry(field));
        }
        fields.insert("component".to_owned(), OPERATOR_POLICY.into());
        fields.insert("value".to_owned(), value.into());
    }
    policy
}

pub(super) fn import(_: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    let body = asked.object()?;
    let mut import = Import::default();
    refuse_what_is_missing(&body)?;
    for vhost in objects(&body, "vhosts")? {
        vhosts::check(&vhost)?;
        import.vhosts.push(CatalogCommand::CreateVhost { name: vhost.needed("name")?.to_owned() });
    }
    for user in objects(&body, "users")? {
        vhosts::no_limits(&user)?;
        let (name, tags) = (user.needed("name")?.to_owned(), users::tags(&user)?);
        match users::password(&user)? {
            users::Password::Plain(password) => import.plain_users.push((name, password, tags)),
            users::Password::Hashed(password_hash) => {
                import.users.push(CatalogCommand::PutUser { name, password_hash, tags });
            }
        }
    }
    for permission in objects(&body, "permissions")? {
        let (user, vhost) = (permission.needed("user")?, permission.needed("vhost")?);
        import.permissions.push(permissions::set(user, vhost, &permission)?);
    }
    parts(&body, None, &mut import)?;
    Ok(Work::Import(Box::new(import)))
}

pub(super) fn import_vhost(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    view.catalog.vhost(asked.vhost()).ok_or(Problem::NotFound)?;
    let body = asked.object()?;
    refuse_what_is_missing(&body)?;
    let mut import = Import::default();
    parts(&body, Some(asked.vhost()), &mut import)?;
    Ok(Work::Import(Box::new(import)))
}

/// What this broker does not have is refused before anything is brought in: it would be lost without a word.
fn refuse_what_is_missing(body: &Body) -> Result<(), Problem> {
    for part in ["topic_permissions"] {
        if !body.list(part)?.is_empty() {
            let why = format!(
                "{part} are not supported yet: nothing was imported. Take '{part}' out of the definitions to import \
                 the rest"
            );
            return Err(Problem::Bad(why));
        }
    }
    Ok(())
}

fn parts(body: &Body, vhost: Option<&str>, import: &mut Import) -> Result<(), Problem> {
    let place = |part: &Body| -> Result<String, Problem> {
        match vhost {
            Some(vhost) => Ok(vhost.to_owned()),
            None => part.needed("vhost").map(str::to_owned),
        }
    };
    for policy in objects(body, "policies")? {
        let (vhost, name) = (place(&policy)?, policy.needed("name")?);
        import.policies.push(policies::set(&vhost, name, PolicyKind::User, &policy)?);
    }
    for parameter in objects(body, "parameters")? {
        import.policies.push(operator_policy(&parameter, vhost)?);
    }
    for queue in objects(body, "queues")? {
        import.queues.push(NewQueue {
            vhost: place(&queue)?,
            name: queue.needed("name")?.to_owned(),
            durable: queue.flag("durable", true)?,
            auto_delete: queue.flag("auto_delete", false)?,
            arguments: arguments::table(&queue.object("arguments")?)?,
        });
    }
    for exchange in objects(body, "exchanges")? {
        import.exchanges.push(NewExchange {
            vhost: place(&exchange)?,
            name: exchange.needed("name")?.to_owned(),
            kind: exchange.needed("type")?.to_owned(),
            durable: exchange.flag("durable", true)?,
            auto_delete: exchange.flag("auto_delete", false)?,
            internal: exchange.flag("internal", false)?,
            arguments: arguments::table(&exchange.object("arguments")?)?,
        });
    }
    for binding in objects(body, "bindings")? {
        import.bindings.push(NewBinding {
            vhost: place(&binding)?,
            source: binding.needed("source")?.to_owned(),
            destination: binding.needed("destination")?.to_owned(),
            to_exchange: match binding.needed("destination_type")? {
                "queue" => false,
                "exchange" => true,
                other => {
                    return Err(Problem::bad(format!("unknown destination_type '{other}'")));
                }
            },
            key: binding.text("routing_key")?.unwrap_or_default().to_owned(),
            arguments: arguments::table(&binding.object("arguments")?)?,
        });
    }
    Ok(())
}

/// Other parameters than operators' policies are refused.
fn operator_policy(parameter: &Body, vhost: Option<&str>) -> Result<CatalogCommand, Problem> {
    let component = parameter.needed("component")?;
    if component != OPERATOR_POLICY {
        return Err(Problem::bad(format!(
            "parameters of '{component}' are not supported yet: nothing was imported. Take them out of the definitions \
             to import the rest"
        )));
    }
    let vhost = vhost.map_or_else(|| parameter.needed("vhost"), Ok)?;
    let value = Body(parameter.object("value")?);
    policies::set(vhost, parameter.needed("name")?, PolicyKind::Operator, &value)
}

fn objects(body: &Body, name: &str) -> Result<Vec<Body>, Problem> {
    let object = |item: &Value| match item {
        Value::Object(fields) => Ok(Body(fields.clone())),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Err(Problem::bad(format!("{name} should be a list of objects")))
        }
    };
    body.list(name)?.iter().map(object).collect()
}
