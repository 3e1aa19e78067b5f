//! All paths: what each needs, and the function that decides what is done.

pub(crate) mod assignment;
mod audit;
mod backup;
mod bindings;
mod companions;
mod connections;
pub(crate) mod dead_letters;
pub(crate) mod definitions;
mod described;
mod exchanges;
pub(crate) mod explain;
mod feature_flags;
pub(crate) mod health;
mod history;
mod limits;
mod live;
pub(crate) mod locks;
mod marks;
mod messages;
pub(crate) mod nodes;
mod openapi;
pub(crate) mod orders;
pub(crate) mod overview;
mod parameters;
mod partitions;
mod pauses;
pub(crate) mod peek;
mod permissions;
mod policies;
mod problems;
mod purges;
pub(crate) mod queues;
mod reconcile;
pub(crate) mod retries;
mod seeks;
mod topic_permissions;
mod users;
mod vhosts;

use http::Method;

pub(crate) use messages::{shown as shown_properties, shown_payload};
pub use overview::{ERLANG_VERSION, RABBITMQ_VERSION};

use crate::access::Need;
use crate::asked::Asked;
use crate::limits::{BODY_BYTES_MAX, DEFINITIONS_BYTES_MAX, LOCK_BODY_BYTES_MAX};
use crate::node::View;
use crate::reply::Problem;
use crate::work::Work;

/// Where browsers log in and out, below `/api`. It is not in the table: nobody is known there yet.
pub(crate) const SESSION: &str = "/millrace/session";

/// Where they are sent to an identity server.
pub(crate) const SESSION_OAUTH: &str = "/millrace/session/oauth";

/// Decides.
pub(crate) type Decide = fn(&View<'_>, &Asked) -> Result<Work, Problem>;

/// One method of one path.
pub(crate) struct Route {
    pub(crate) method: Method,
    /// Below `/api`, as axum writes it.
    pub(crate) path: &'static str,
    pub(crate) need: Need,
    pub(crate) decide: Decide,
    /// Bytes of a body.
    pub(crate) body_bytes: usize,
    /// It is about one small thing that it names, and programs ask it all the time: it is decided on the thread that
    /// has read it, takes nobody's turn, and is no news for the log.
    pub(crate) is_small: bool,
}

const fn get(path: &'static str, need: Need, decide: Decide) -> Route {
    route(Method::GET, path, need, decide)
}

const fn put(path: &'static str, need: Need, decide: Decide) -> Route {
    route(Method::PUT, path, need, decide)
}

const fn post(path: &'static str, need: Need, decide: Decide) -> Route {
    route(Method::POST, path, need, decide)
}

const fn delete(path: &'static str, need: Need, decide: Decide) -> Route {
    route(Method::DELETE, path, need, decide)
}

const fn route(method: Method, path: &'static str, need: Need, decide: Decide) -> Route {
    Route { method, path, need, decide, body_bytes: BODY_BYTES_MAX, is_small: false }
}

/// Definitions are larger than what others send.
const fn post_definitions(path: &'static str, decide: Decide) -> Route {
    let (method, need, body_bytes) = (Method::POST, Need::Administrator, DEFINITIONS_BYTES_MAX);
    Route { method, path, need, decide, body_bytes, is_small: false }
}

const fn of_lock(method: Method, path: &'static str, need: Need, decide: Decide) -> Route {
    Route { method, path, need, decide, body_bytes: LOCK_BODY_BYTES_MAX, is_small: true }
}

/// Method and path of each route: `{vhost}` and the like stand for a part of the path.
pub fn paths() -> impl Iterator<Item = (&'static str, &'static str)> {
    ROUTES.iter().map(|route| (route.method.as_str(), route.path))
}

/// The whole table.
pub(crate) const ROUTES: &[Route] = &[
    get("/overview", Need::User, overview::overview),
    get("/whoami", Need::User, overview::whoami),
    get("/auth", Need::User, overview::auth),
    get("/extensions", Need::User, overview::extensions),
    get("/feature-flags", Need::Monitor, feature_flags::list),
    put("/feature-flags/{flag}/enable", Need::Administrator, feature_flags::enable),
    get("/cluster-name", Need::User, overview::cluster_name),
    put("/cluster-name", Need::Administrator, overview::put_cluster_name),
    get("/nodes", Need::Monitor, nodes::list),
    get("/nodes/{node}", Need::Monitor, nodes::one),
    get("/vhosts", Need::User, vhosts::list),
    get("/vhosts/{vhost}", Need::Visible, vhosts::one),
    put("/vhosts/{vhost}", Need::Administrator, vhosts::put),
    delete("/vhosts/{vhost}", Need::Administrator, vhosts::delete),
    get("/vhosts/{vhost}/permissions", Need::Administrator, permissions::of_vhost),
    get("/vhosts/{vhost}/topic-permissions", Need::Administrator, topic_permissions::of_vhost),
    get("/vhosts/{vhost}/connections", Need::Visible, connections::of_vhost),
    get("/vhosts/{vhost}/channels", Need::Visible, connections::channels_of_vhost),
    get("/users", Need::Administrator, users::list),
    get("/users/without-permissions", Need::Administrator, users::without_permissions),
    post("/users/bulk-delete", Need::Administrator, users::bulk_delete),
    get("/users/{user}", Need::Administrator, users::one),
    put("/users/{user}", Need::Administrator, users::put),
    delete("/users/{user}", Need::Administrator, users::delete),
    get("/users/{user}/permissions", Need::Administrator, permissions::of_user),
    get("/users/{user}/topic-permissions", Need::Administrator, topic_permissions::of_user),
    get("/permissions", Need::Administrator, permissions::list),
    get("/permissions/{vhost}/{user}", Need::Administrator, permissions::one),
    put("/permissions/{vhost}/{user}", Need::Administrator, permissions::put),
    delete("/permissions/{vhost}/{user}", Need::Administrator, permissions::delete),
    get("/topic-permissions", Need::Administrator, topic_permissions::list),
    get("/topic-permissions/{vhost}/{user}", Need::Administrator, topic_permissions::one),
    put("/topic-permissions/{vhost}/{user}", Need::Administrator, topic_permissions::put),
    delete("/topic-permissions/{vhost}/{user}", Need::Administrator, topic_permissions::delete),
    delete(
        "/topic-permissions/{vhost}/{user}/{exchange}",
        Need::Administrator,
        topic_permissions::delete_one,
    ),
    get("/vhost-limits", Need::Administrator, limits::of_vhosts),
    get("/vhost-limits/{vhost}", Need::Visible, limits::of_vhost),
    put("/vhost-limits/{vhost}/{limit}", Need::Administrator, limits::put_of_vhost),
    delete("/vhost-limits/{vhost}/{limit}", Need::Administrator, limits::delete_of_vhost),
    get("/user-limits", Need::Administrator, limits::of_users),
    get("/user-limits/{user}", Need::Administrator, limits::of_user),
    put("/user-limits/{user}/{limit}", Need::Administrator, limits::put_of_user),
    delete("/user-limits/{user}/{limit}", Need::Administrator, limits::delete_of_user),
    get("/parameters", Need::User, parameters::list),
    get("/parameters/{component}", Need::User, parameters::list),
    get("/parameters/{component}/{vhost}", Need::Policies, parameters::of_vhost),
    get("/parameters/{component}/{vhost}/{name}", Need::Policies, parameters::one),
    put("/parameters/{component}/{vhost}/{name}", Need::Administrator, parameters::put),
    delete("/parameters/{component}/{vhost}/{name}", Need::Administrator, parameters::delete),
    get("/global-parameters", Need::User, parameters::global),
    get("/queues", Need::User, queues::list),
    get("/queues/{vhost}", Need::Visible, queues::of_vhost),
    get("/queues/{vhost}/{queue}", Need::Visible, queues::one),
    put("/queues/{vhost}/{queue}", Need::Vhost, queues::put),
    delete("/queues/{vhost}/{queue}", Need::Vhost, queues::delete),
    delete("/queues/{vhost}/{queue}/contents", Need::Vhost, purges::purge),
    post("/queues/{vhost}/{queue}/actions", Need::Administrator, queues::act),
    post("/queues/{vhost}/{queue}/get", Need::Vhost, messages::get),
    get("/queues/{vhost}/{queue}/messages", Need::Peek, peek::peek),
    get("/queues/{vhost}/{queue}/bindings", Need::Visible, bindings::of_queue),
    get("/exchanges", Need::User, exchanges::list),
    get("/exchanges/{vhost}", Need::Visible, exchanges::of_vhost),
    get("/exchanges/{vhost}/{exchange}", Need::Visible, exchanges::one),
    put("/exchanges/{vhost}/{exchange}", Need::Vhost, exchanges::put),
    delete("/exchanges/{vhost}/{exchange}", Need::Vhost, exchanges::delete),
    post("/exchanges/{vhost}/{exchange}/publish", Need::Vhost, messages::publish),
    get("/exchanges/{vhost}/{exchange}/bindings/source", Need::Visible, bindings::of_source),
    get(
        "/exchanges/{vhost}/{exchange}/bindings/destination",
        Need::Visible,
        bindings::of_destination,
    ),
    get("/bindings", Need::User, bindings::list),
    get("/bindings/{vhost}", Need::Visible, bindings::of_vhost),
    get("/bindings/{vhost}/e/{source}/q/{destination}", Need::Visible, bindings::to_queue),
    post("/bindings/{vhost}/e/{source}/q/{destination}", Need::Vhost, bindings::bind_queue),
    get("/bindings/{vhost}/e/{source}/e/{destination}", Need::Visible, bindings::to_exchange),
    post("/bindings/{vhost}/e/{source}/e/{destination}", Need::Vhost, bindings::bind_exchange),
    get(
        "/bindings/{vhost}/e/{source}/q/{destination}/{key}",
        Need::Visible,
        bindings::one_to_queue,
    ),
    delete(
        "/bindings/{vhost}/e/{source}/q/{destination}/{key}",
        Need::Vhost,
        bindings::unbind_queue,
    ),
    get(
        "/bindings/{vhost}/e/{source}/e/{destination}/{key}",
        Need::Visible,
        bindings::one_to_exchange,
    ),
    delete(
        "/bindings/{vhost}/e/{source}/e/{destination}/{key}",
        Need::Vhost,
        bindings::unbind_exchange,
    ),
    get("/connections", Need::User, connections::list),
    get("/connections/{connection}", Need::User, connections::one),
    delete("/connections/{connection}", Need::User, connections::close),
    get("/connections/{connection}/channels", Need::User, connections::channels_of),
    get("/connections/username/{user}", Need::Administrator, connections::of_user),
    delete("/connections/username/{user}", Need::Administrator, connections::close_of_user),
    get("/channels", Need::User, connections::channels),
    get("/channels/{channel}", Need::User, connections::channel),
    get("/consumers", Need::User, connections::consumers),
    get("/consumers/{vhost}", Need::Visible, connections::consumers_of_vhost),
    get("/policies", Need::User, policies::list),
    get("/policies/{vhost}", Need::Policies, policies::of_vhost),
    get("/policies/{vhost}/{policy}", Need::Policies, policies::one),
    put("/policies/{vhost}/{policy}", Need::Policies, policies::put),
    delete("/policies/{vhost}/{policy}", Need::Policies, policies::delete),
    get("/operator-policies", Need::User, policies::operators),
    get("/operator-policies/{vhost}", Need::Policies, policies::operators_of_vhost),
    get("/operator-policies/{vhost}/{policy}", Need::Policies, policies::operator),
    put("/operator-policies/{vhost}/{policy}", Need::Administrator, policies::put_operator),
    delete("/operator-policies/{vhost}/{policy}", Need::Administrator, policies::delete_operator),
    get("/definitions", Need::Administrator, definitions::export),
    post_definitions("/definitions", definitions::import),
    get("/definitions/{vhost}", Need::Administrator, definitions::export_vhost),
    post_definitions("/definitions/{vhost}", definitions::import_vhost),
    get("/millrace/groups", Need::Monitor, nodes::groups),
    get("/millrace/nodes/{node}/disk", Need::Monitor, nodes::disk),
    post("/millrace/nodes/{node}/drain", Need::Administrator, orders::drain),
    post("/millrace/nodes/{node}/replace", Need::Administrator, orders::replace),
    post("/millrace/rebalance", Need::Administrator, orders::rebalance),
    put("/millrace/queues/{vhost}/{queue}/pause", Need::Policies, pauses::put),
    delete("/millrace/queues/{vhost}/{queue}/pause", Need::Policies, pauses::delete),
    put("/millrace/consumers/{channel}/{tag}/pause", Need::User, connections::pause),
    delete("/millrace/consumers/{channel}/{tag}/pause", Need::User, connections::resume),
    post("/millrace/queues/{vhost}/{queue}/unpurge", Need::Vhost, purges::unpurge),
    get("/millrace/queues/{vhost}/{queue}/position", Need::Visible, seeks::get),
    put("/millrace/queues/{vhost}/{queue}/position", Need::Policies, seeks::put),
    put("/millrace/queues/{vhost}/{queue}/partitions", Need::Policies, partitions::put),
    get("/millrace/queues/{vhost}/{queue}/assignment", Need::Visible, assignment::get),
    post("/millrace/queues/{vhost}/{queue}/retry", Need::Vhost, retries::start),
    get("/millrace/queues/{vhost}/{queue}/dead-letters", Need::Visible, dead_letters::deaths),
    get("/millrace/dead-letter-queues", Need::User, dead_letters::queues),
    get("/millrace/dead-letters", Need::User, dead_letters::everywhere),
    get("/millrace/retries", Need::User, retries::list),
    get("/millrace/retries/{retry}", Need::User, retries::one),
    delete("/millrace/retries/{retry}", Need::User, retries::stop),
    get("/millrace/locks/{vhost}", Need::Visible, locks::list),
    of_lock(Method::GET, "/millrace/locks/{vhost}/{lock}", Need::Visible, locks::one),
    of_lock(Method::PUT, "/millrace/locks/{vhost}/{lock}", Need::Vhost, locks::acquire),
    of_lock(Method::POST, "/millrace/locks/{vhost}/{lock}", Need::Vhost, locks::renew),
    of_lock(Method::DELETE, "/millrace/locks/{vhost}/{lock}", Need::Vhost, locks::release),
    of_lock(Method::PUT, "/millrace/locks/{vhost}/{lock}/value", Need::Vhost, locks::put_value),
    of_lock(
        Method::DELETE,
        "/millrace/locks/{vhost}/{lock}/value",
        Need::Vhost,
        locks::delete_value,
    ),
    get("/millrace/companions", Need::Monitor, companions::list),
    put("/millrace/companions/{companion}/pause", Need::Administrator, companions::pause),
    delete("/millrace/companions/{companion}/pause", Need::Administrator, companions::resume),
    put(
        "/millrace/companions/{companion}/pause/{pipeline}",
        Need::Administrator,
        companions::pause,
    ),
    delete(
        "/millrace/companions/{companion}/pause/{pipeline}",
        Need::Administrator,
        companions::resume,
    ),
    get("/millrace/held", Need::User, connections::held),
    get("/millrace/audit", Need::Administrator, audit::list),
    get("/millrace/explain/{vhost}/{exchange}", Need::Visible, explain::message),
    get("/millrace/explain/{vhost}/queues/{queue}", Need::Visible, explain::queue),
    post("/millrace/explain/{vhost}/policies/{policy}", Need::Policies, policies::foresee),
    post(
        "/millrace/explain/{vhost}/operator-policies/{policy}",
        Need::Administrator,
        policies::foresee_operator,
    ),
    post("/millrace/backups", Need::Administrator, backup::begin),
    get("/millrace/backups/{backup}/{group}/{offset}", Need::Administrator, backup::part),
    delete("/millrace/backups/{backup}", Need::Administrator, backup::end),
    get("/aliveness-test/{vhost}", Need::Vhost, health::aliveness),
    get("/health/checks/alarms", Need::User, health::alarms),
    get("/health/checks/local-alarms", Need::User, health::local_alarms),
    get("/health/checks/virtual-hosts", Need::User, health::vhosts),
    get("/health/checks/port-listener/{port}", Need::User, health::port),
    get("/health/checks/protocol-listener/{protocol}", Need::User, health::protocol),
    get("/health/checks/node-is-quorum-critical", Need::User, health::quorum_critical),
    get("/health/checks/node-is-mirror-sync-critical", Need::User, health::always),
    get("/health/checks/certificate-expiration/{count}/{unit}", Need::User, health::certificates),
    get("/millrace/problems", Need::User, problems::problems),
    get("/millrace/reconcile", Need::Monitor, reconcile::all),
    get("/millrace/reconcile/{vhost}", Need::Visible, reconcile::of_vhost),
    get("/millrace/live", Need::User, live::live),
    get("/millrace/history", Need::Monitor, history::all),
    get("/millrace/history/nodes/{node}", Need::Monitor, history::node),
    get("/millrace/history/queues/{vhost}/{queue}", Need::Visible, history::queue),
    post("/millrace/marks", Need::Monitor, marks::post),
    get("/millrace/openapi.json", Need::User, openapi::openapi),
];
