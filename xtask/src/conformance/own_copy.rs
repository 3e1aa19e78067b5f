//! Copies of sources that others published, to be built and changed here.

use std::path::Path;

use crate::Outcome;
use crate::process::{command, run_logged};

/// Copies a folder, so that it can be written to. Nothing needs to be there yet, and nothing may be at `to`.
pub(super) fn place(from: &Path, to: &Path, log: &Path) -> Outcome {
    if let Some(parent) = to.parent() {
        std::fs::create_dir_all(parent)
            .map_err(|error| format!("{}: {error}", parent.display()))?;
    }
    run_logged(command("cp", &["-r"]).args([from, to]), log)?;
    run_logged(command("chmod", &["-R", "u+w"]).arg(to), log)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Installers work beside each other, and the first of them finds nothing there.
    #[test]
    fn sources_are_placed_where_nothing_is_yet() {
        let base = std::env::temp_dir().join(format!("millrace-own-copy-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&base);
        let from = base.join("published");
        std::fs::create_dir_all(from.join("src")).unwrap();
        std::fs::write(from.join("src/lib.rs"), "text").unwrap();
        let read_only = |folder: &Path| {
            let mut mode = std::fs::metadata(folder).unwrap().permissions();
            mode.set_readonly(true);
            std::fs::set_permissions(folder, mode).unwrap();
        };
        read_only(&from.join("src/lib.rs"));

        let place_one = |name: &str| {
            let to = base.join(".tools/src").join(name);
            place(&from, &to, &base.join(format!("{name}.log"))).unwrap();
            to.join("src/lib.rs")
        };
        let copies = std::thread::scope(|scope| {
            let both = ["lapin", "amqprs"].map(|name| scope.spawn(move || place_one(name)));
            both.map(|copying| copying.join().unwrap())
        });
        for copy in copies {
            assert_eq!(std::fs::read_to_string(&copy).unwrap(), "text");
            assert!(!std::fs::metadata(&copy).unwrap().permissions().readonly());
        }
        std::fs::remove_dir_all(base).unwrap();
    }
}
