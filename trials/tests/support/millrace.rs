//! The broker of the build that the trials belong to.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package lies in the repository")
}

/// The one that `TRIALS_MILLRACE` names, or one built now, once, in the profile of this test: alone it has
/// other features of its dependencies than beside its tests, and is another build.
pub(crate) fn broker() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        if let Some(binary) = std::env::var_os("TRIALS_MILLRACE") {
            return binary.into();
        }
        let trials = Path::new(env!("CARGO_BIN_EXE_trials"));
        let folder = trials.parent().expect("a program lies in a folder");
        let target = folder.parent().expect("a profile lies in the target directory");
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "--package", "millrace", "--target-dir"]).arg(target);
        if folder.ends_with("release") {
            build.arg("--release");
        }
        assert!(build.current_dir(root()).status().expect("cargo starts").success());
        folder.join("millrace")
    })
}
