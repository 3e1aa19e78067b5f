//! The verbs of RabbitMQ's tools: `millrace list_queues` is `millrace queues list`.

use std::ffi::OsString;

/// A verb of `rabbitmqctl` or `rabbitmq-diagnostics`, and the words that stand for it here. What follows the verb stays.
const VERBS: &[(&str, &[&str])] = &[
    ("add_user", &["users", "add"]),
    ("change_password", &["users", "set-password"]),
    ("clear_password", &["users", "clear-password"]),
    ("delete_user", &["users", "delete"]),
    ("list_users", &["users", "list"]),
    ("set_user_tags", &["users", "set-tags"]),
    ("add_vhost", &["vhosts", "add"]),
    ("delete_vhost", &["vhosts", "delete"]),
    ("list_vhosts", &["vhosts", "list"]),
    ("trace_on", &["vhosts", "trace-on"]),
    ("trace_off", &["vhosts", "trace-off"]),
    ("set_permissions", &["permissions", "set"]),
    ("clear_permissions", &["permissions", "delete"]),
    ("list_permissions", &["permissions", "list"]),
    ("list_user_permissions", &["permissions", "list", "--user"]),
    ("set_topic_permissions", &["topic-permissions", "set"]),
    ("clear_topic_permissions", &["topic-permissions", "delete"]),
    ("list_topic_permissions", &["topic-permissions", "list"]),
    ("list_user_topic_permissions", &["topic-permissions", "list", "--user"]),
    ("set_vhost_limits", &["limits", "set-vhost"]),
    ("clear_vhost_limits", &["limits", "clear-vhost"]),
    ("list_vhost_limits", &["limits", "list"]),
    ("set_user_limits", &["limits", "set-user"]),
    ("clear_user_limits", &["limits", "clear-user"]),
    ("list_user_limits", &["limits", "list", "--users"]),
    ("set_policy", &["policies", "set"]),
    ("clear_policy", &["policies", "delete"]),
    ("list_policies", &["policies", "list"]),
    ("set_operator_policy", &["policies", "set", "--operator"]),
    ("clear_operator_policy", &["policies", "delete", "--operator"]),
    ("list_operator_policies", &["policies", "list", "--operator"]),
    ("list_queues", &["queues", "list"]),
    ("delete_queue", &["queues", "delete"]),
    ("purge_queue", &["queues", "purge"]),
    ("list_exchanges", &["exchanges", "list"]),
    ("list_bindings", &["bindings", "list"]),
    ("list_connections", &["connections", "list"]),
    ("close_connection", &["connections", "close"]),
    ("close_all_user_connections", &["connections", "close-user"]),
    ("list_channels", &["channels", "list"]),
    ("list_consumers", &["consumers", "list"]),
    ("export_definitions", &["definitions", "export"]),
    ("import_definitions", &["definitions", "import"]),
    ("await_startup", &["wait", "--ready"]),
    ("ping", &["check", "ready"]),
    ("check_running", &["check", "ready"]),
    ("check_alarms", &["check", "alarms"]),
    ("check_local_alarms", &["check", "alarms"]),
    ("check_if_node_is_quorum_critical", &["check", "quorum-critical"]),
    ("check_port_listener", &["check", "port"]),
    ("check_protocol_listener", &["check", "port", "--protocol"]),
    ("check_port_connectivity", &["check", "port", "--connect"]),
    ("check_certificate_expiration", &["check", "certificate"]),
];

/// A command line with our words for RabbitMQ's verb, if it begins with one.
pub(crate) fn translated(line: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut line: Vec<OsString> = line.collect();
    let verb = line.get(1).and_then(|word| word.to_str());
    let found = VERBS.iter().find(|(known, _)| Some(*known) == verb);
    if let Some((_, words)) = found {
        drop(line.splice(1..2, words.iter().map(OsString::from)));
    }
    line
}

/// The verbs as commands, so that a slip of the pen in one is told with the right one.
pub(crate) fn with_verbs(command: clap::Command) -> clap::Command {
    command.subcommands(VERBS.iter().map(|(verb, _)| clap::Command::new(*verb).hide(true)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verb_becomes_our_words_and_what_follows_stays() {
        let line = |words: &[&str]| translated(words.iter().map(OsString::from));
        assert_eq!(
            line(&["millrace", "list_queues", "name"]),
            ["millrace", "queues", "list", "name"]
        );
        assert_eq!(
            line(&["millrace", "list_user_permissions", "ann"]),
            ["millrace", "permissions", "list", "--user", "ann"]
        );
        assert_eq!(
            line(&["millrace", "queues", "list_queues"]),
            ["millrace", "queues", "list_queues"]
        );
        assert_eq!(line(&["millrace"]), ["millrace"]);
    }
}
