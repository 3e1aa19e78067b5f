//! `chart`: lets helm check the chart in `deploy/helm`, as it is and with what people change.
//!
//! CI does not run it: to build helm takes minutes, and it is of use to nothing else here.

use std::path::PathBuf;

use crate::Outcome;
use crate::process::{command, has, output, run, run_logged, tools};

const CHART: &str = "deploy/helm/millrace";

/// What is built where there is no helm.
const HELM: &str = "helm.sh/helm/v3/cmd/helm@v3.18.4";

/// The release of Kubernetes that is rendered for: the newest whose rules this knows, and the oldest that the chart takes.
const KUBERNETES: [&str; 2] = ["1.34.0", "1.28.0"];

/// What people set, and what must be in the result then.
const CASES: &[(&[&str], &[&str])] = &[
    (&[], &["replicas: 3", "kind: PodDisruptionBudget", "MILLRACE_PEERS", "path: /ready"]),
    (&["replicas=1"], &["replicas: 1", "1=trial-millrace-1."]),
    (&["auth.existingSecret=mine"], &["name: mine"]),
    (&["tls.secretName=pem"], &["MILLRACE_AMQPS", "secretName: pem", "name: amqps"]),
    (
        &["tls.secretName=pem", "tls.clientCertificates=required"],
        &["MILLRACE_TLS_CACERTFILE", "value: \"required\""],
    ),
    (&["peerTls.secretName=peers"], &["MILLRACE_PEER_TLS_KEY", "secretName: peers"]),
    (&["settings.log=debug"], &["name: MILLRACE_LOG", "value: \"debug\""]),
];

/// What people set by mistake, and what they are told.
const MISTAKES: &[(&[&str], &str)] =
    &[(&["replicas=2"], "replicas"), (&["settings.peers=x"], "settings.peers")];

/// `cargo xtask chart`
pub(crate) fn command_line(_: &[String]) -> Outcome {
    let helm = helm()?;
    run(&mut command(&helm, &["lint", "--strict", CHART]))?;
    for (set, wanted) in CASES {
        for release in KUBERNETES {
            let text = output(&mut template(&helm, set, release))?;
            for words in *wanted {
                if !text.contains(words) {
                    return Err(format!(
                        "{set:?} on Kubernetes {release}: {words} is not in\n{text}"
                    ));
                }
            }
        }
    }
    for (set, wanted) in MISTAKES {
        let said = template(&helm, set, KUBERNETES[0]).output();
        let said = said.map_err(|error| format!("helm: {error}"))?;
        let words = String::from_utf8_lossy(&said.stderr);
        if said.status.success() || !words.contains(wanted) {
            return Err(format!("{set:?} must be refused with {wanted}, not {words}"));
        }
    }
    println!("{} cases rendered, {} refused", CASES.len() * KUBERNETES.len(), MISTAKES.len());
    Ok(())
}

fn template(helm: &PathBuf, set: &[&str], release: &str) -> std::process::Command {
    let mut template = command(helm, &["template", "trial", CHART, "--kube-version", release]);
    template.args(set.iter().flat_map(|value| ["--set", value]));
    template
}

/// The helm of this machine, or one that is built now.
fn helm() -> Result<PathBuf, String> {
    if has("helm") {
        return Ok("helm".into());
    }
    let folder = tools().join("bin");
    let built = folder.join("helm");
    if !built.exists() {
        std::fs::create_dir_all(&folder)
            .map_err(|error| format!("{}: {error}", folder.display()))?;
        println!("building {HELM}, which takes minutes");
        let mut install = command("go", &["install", HELM]);
        run_logged(install.env("GOBIN", &folder), &tools().join("helm.log"))?;
    }
    Ok(built)
}
