//! Certificates for clients' tests of TLS, as py-amqp's repository has them in `t/certs`: an authority, a server, a client,
//! and a client whose key is another's. Made anew for each run by `openssl`.

use std::path::Path;

use crate::Outcome;
use crate::process::{command, run_logged};

/// Longer than any run.
const DAYS: &str = "2";

/// Whom the server's certificate names: all names of the machine itself.
const SERVER: &str = "subjectAltName=DNS:localhost,IP:127.0.0.1";
const CLIENT: &str = "subjectAltName=DNS:client";

/// Makes them in `folder`, and says so in `log`.
pub(super) fn make(folder: &Path, log: &Path) -> Outcome {
    std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut authority = command("openssl", &["req", "-x509", "-days", DAYS, "-subj", "/CN=tests"]);
    authority.args(NEW_KEY).arg("-keyout").arg(folder.join("ca_key.pem"));
    run_logged(authority.arg("-out").arg(folder.join("ca_certificate.pem")), log)?;
    for (name, names) in [("server", SERVER), ("client", CLIENT)] {
        sign(folder, name, names, log)?;
    }
    // A key that is not that of the certificate.
    let copy = |from: &str, to: &str| {
        let copied = std::fs::copy(folder.join(from), folder.join(to));
        copied.map(drop).map_err(|error| format!("{from}: {error}"))
    };
    copy("client_certificate.pem", "client_certificate_broken.pem")?;
    copy("server_key.pem", "client_key_broken.pem")
}

const NEW_KEY: [&str; 5] = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];

fn sign(folder: &Path, name: &str, names: &str, log: &Path) -> Outcome {
    let subject = format!("/CN={name}");
    let mut signed = command("openssl", &["req", "-x509", "-days", DAYS, "-subj", &subject]);
    signed.args(NEW_KEY).args(["-addext", names, "-addext", "basicConstraints=critical,CA:FALSE"]);
    signed.arg("-CA").arg(folder.join("ca_certificate.pem"));
    signed.arg("-CAkey").arg(folder.join("ca_key.pem"));
    signed.arg("-keyout").arg(folder.join(format!("{name}_key.pem")));
    run_logged(signed.arg("-out").arg(folder.join(format!("{name}_certificate.pem"))), log)
}
