//! Definitions: what a broker is made of, without its messages; written out, and brought in.

use broker::operator::{NewBinding, NewExchange, NewQueue};
use machine::{Catalog, CatalogCommand, PolicyKind, Vhost};
use serde_json::{Map, Value, json};

use super::parameters;
use super::{
    bindings, exchanges, overview, permissions, policies, queues, topic_permissions, users, vhosts,
};
use crate::arguments;
use crate::asked::{Asked, Body};
use crate::import::Import;
use crate::node::View;
use crate::reply::Problem;
use crate::work::Work;

pub(super) fn export(view: &View<'_>, _: &Asked) -> Result<Work, Problem> {
    let catalog = view.catalog;
    let all: Vec<&Vhost> = catalog.vhosts().collect();
    let vhosts: Vec<Value> = all.iter().map(|vhost| vhosts::shown(vhost)).collect();
    let users: Vec<Value> = catalog.users().map(users::shown).collect();
    let permissions: Vec<Value> = catalog.users().flat_map(permissions::of).collect();
    let topics: Vec<Value> = catalog.users().flat_map(topic_permissions::of).collect();
    let mut body = json!({
        "rabbit_version": overview::RABBITMQ_VERSION,
        "rabbitmq_version": overview::RABBITMQ_VERSION,
        "product_name": "Millrace",
        "product_version": env!("CARGO_PKG_VERSION"),
        "original_cluster_name": overview::name(view),
        "users": users,
        "vhosts": vhosts,
        "permissions": permissions,
        "topic_permissions": topics,
        "global_parameters": parameters::globals(catalog.name()),
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
    let parameters = vhosts.iter().flat_map(|vhost| parameters::of(vhost));
    parts.insert("parameters".to_owned(), parameters.map(tidy).collect());
    let bindings = vhosts.iter().flat_map(|vhost| bindings::defined(vhost));
    parts.insert("bindings".to_owned(), bindings.map(tidy).collect());
    parts
}

pub(super) fn import(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    Ok(Work::Import(Box::new(read(view.catalog, &asked.object()?)?)))
}

/// What definitions say, to be brought into this catalog.
pub(crate) fn read(catalog: &Catalog, body: &Body) -> Result<Import, Problem> {
    let mut import = Import::default();
    for parameter in objects(body, "global_parameters")? {
        import.vhosts.extend(global_parameter(&parameter)?);
    }
    for vhost in objects(body, "vhosts")? {
        let name = vhost.needed("name")?;
        let before = catalog.vhost(name).map(|known| known.metadata.clone());
        import.vhosts.push(CatalogCommand::CreateVhost { name: name.to_owned() });
        import.vhosts.extend(vhosts::set(name, before.unwrap_or_default(), &vhost)?);
    }
    for user in objects(body, "users")? {
        import.permissions.extend(users::limits(user.needed("name")?, &user)?);
        let (name, tags) = (user.needed("name")?.to_owned(), users::tags(&user)?);
        match users::password(&user)? {
            users::Password::Plain(password) => import.plain_users.push((name, password, tags)),
            users::Password::Hashed(password_hash) => {
                import.users.push(CatalogCommand::PutUser { name, password_hash, tags });
            }
        }
    }
    for permission in objects(body, "permissions")? {
        let (user, vhost) = (permission.needed("user")?, permission.needed("vhost")?);
        import.permissions.push(permissions::set(user, vhost, &permission)?);
    }
    for permission in objects(body, "topic_permissions")? {
        let (user, vhost) = (permission.needed("user")?, permission.needed("vhost")?);
        import.permissions.push(topic_permissions::set(user, vhost, &permission)?);
    }
    parts(body, None, &mut import)?;
    Ok(import)
}

pub(super) fn import_vhost(view: &View<'_>, asked: &Asked) -> Result<Work, Problem> {
    view.catalog.vhost(asked.vhost()).ok_or(Problem::NotFound)?;
    let body = asked.object()?;
    let mut import = Import::default();
    parts(&body, Some(asked.vhost()), &mut import)?;
    Ok(Work::Import(Box::new(import)))
}

/// Those that RabbitMQ sets by itself are its own business; others are refused before anything is brought in: they would
/// be lost without a word.
fn global_parameter(parameter: &Body) -> Result<Option<CatalogCommand>, Problem> {
    match parameter.needed("name")? {
        "cluster_name" => {
            let name = parameter.needed_short("value")?.to_owned();
            Ok(Some(CatalogCommand::SetClusterName { name }))
        }
        "internal_cluster_id" => Ok(None),
        other => Err(Problem::bad(format!(
            "the global parameter '{other}' is not supported: nothing was imported. Take it out of the definitions to \
             import the rest"
        ))),
    }
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
        import.policies.push(self::parameter(&parameter, vhost)?);
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

/// Other parameters than operators' policies and limits are refused.
fn parameter(parameter: &Body, vhost: Option<&str>) -> Result<CatalogCommand, Problem> {
    let component = parameter.needed("component")?;
    let value = parameter.object("value")?;
    let vhost = vhost.map_or_else(|| parameter.needed("vhost"), Ok)?;
    // Limits have no name but one.
    let name = parameter.text("name")?.unwrap_or_default();
    parameters::set(component, vhost, name, value)?.ok_or_else(|| {
        Problem::bad(format!(
            "parameters of '{component}' are not supported: nothing was imported. Take them out of the definitions to \
             import the rest"
        ))
    })
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
