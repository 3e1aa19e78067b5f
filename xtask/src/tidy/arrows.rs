//! Which crate may use which (invariant I2): arrows only point down.

use std::path::Path;

use super::Finding;

/// Each package of the workspace and what it may use of the others. An arrow more is a decision
/// record and a change of `ARCHITECTURE.md`.
const ARROWS: &[(&str, &[&str])] = &[
    ("crates/amqp", &[]),
    ("crates/planted", &[]),
    ("crates/wal", &["planted"]),
    ("crates/machine", &["planted"]),
    ("crates/certificates", &[]),
    ("crates/cluster", &["planted", "wal", "machine", "certificates"]),
    ("crates/oauth", &["certificates"]),
    ("crates/otlp", &["certificates"]),
    ("crates/broker", &["amqp", "planted", "machine", "cluster", "certificates", "oauth", "otlp"]),
    ("crates/client", &["amqp", "certificates"]),
    ("crates/service", &["client", "certificates"]),
    ("crates/relay", &["planted", "amqp", "client", "service", "certificates"]),
    ("crates/worker", &["amqp", "client", "service", "certificates"]),
    (
        "crates/management",
        &["amqp", "client", "service", "machine", "cluster", "broker", "certificates", "oauth"],
    ),
    ("crates/millrace", EVERY),
    ("trials", EVERY),
    ("examples", EVERY),
    ("xtask", &[]),
];

const EVERY: &[&str] = &[
    "amqp",
    "planted",
    "wal",
    "machine",
    "cluster",
    "broker",
    "client",
    "certificates",
    "oauth",
    "otlp",
    "relay",
    "service",
    "worker",
    "management",
    "trials",
];

/// The folders of the packages of the workspace.
pub(crate) fn packages(root: &Path) -> Result<Vec<String>, String> {
    Ok(members(&read(root, "Cargo.toml")?))
}

pub(super) fn findings(root: &Path) -> Result<Vec<Finding>, String> {
    let mut findings = Vec::new();
    for member in packages(root)? {
        let path = format!("{member}/Cargo.toml");
        let Some((_, allowed)) = ARROWS.iter().find(|(name, _)| *name == member) else {
            let message = format!("`{member}` is not in tidy's table of arrows");
            findings.push(Finding { path: "Cargo.toml".into(), line: 1, message });
            continue;
        };
        let text = read(root, &path)?;
        for (line, name) in uses(&text) {
            if EVERY.contains(&name) && !allowed.contains(&name) {
                let message = format!("`{member}` may not use `{name}` (I2)");
                findings.push(Finding { path: path.clone().into(), line, message });
            }
        }
        if !text.contains("[lints]\nworkspace = true") {
            let message = "the workspace's lints are missing".into();
            findings.push(Finding { path: path.into(), line: 1, message });
        }
    }
    Ok(findings)
}

fn read(root: &Path, path: &str) -> Result<String, String> {
    std::fs::read_to_string(root.join(path)).map_err(|error| format!("{path}: {error}"))
}

/// The strings of `members = [ … ]`.
fn members(text: &str) -> Vec<String> {
    let list = text.split_once("members = [").and_then(|(_, rest)| rest.split_once(']'));
    let list = list.map_or("", |(list, _)| list);
    list.split('"').skip(1).step_by(2).map(String::from).collect()
}

/// Names in any table of dependencies, tests' included, with their lines.
fn uses(text: &str) -> Vec<(usize, &str)> {
    let mut names = Vec::new();
    let mut in_table = false;
    for (index, line) in text.lines().enumerate() {
        if line.starts_with('[') {
            in_table = line.trim_end().ends_with("dependencies]");
        } else if in_table {
            let end = line.find(['.', ' ', '=']).unwrap_or(line.len());
            names.push((index + 1, &line[..end]));
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_of_every_table_are_seen() {
        let text = "[package]\nname = \"a\"\n[dependencies]\nwal.workspace = true\n\
                    [dev-dependencies]\nbroker = { path = \"x\" }\n[lints]\nworkspace = true\n";
        assert_eq!(uses(text), [(4, "wal"), (6, "broker")]);
    }

    #[test]
    fn members_are_read_from_the_list() {
        assert_eq!(members("members = [\n \"a/b\",\n \"c\",\n]\n"), ["a/b", "c"]);
    }
}
