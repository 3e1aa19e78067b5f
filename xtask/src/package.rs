//! `package`: a Debian package of the product. `dpkg-deb` packs it; what it holds beside the program is in
//! `deploy/debian`.
//!
//! The program in it is stripped. What a debugger wants lies beside the package. With `--try` the package is installed,
//! used and removed on a machine that is thrown away (`trial`).

mod control;
mod machine;
mod trial;

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::brokers::Build;
use crate::process::{command, output, root, run, target};
use crate::{Outcome, namespace};

pub(crate) use trial::try_tested;

const USAGE: &str = "usage: cargo xtask package [--binary FILE] [--out DIR] [--try]";

/// Where the package's own files are, from the root of the repository.
const FOLDER: &str = "deploy/debian";

/// What it installs: from the root of the repository, to the root of the machine.
const FILES: &[(&str, &str)] = &[
    ("deploy/debian/millrace.service", "usr/lib/systemd/system/millrace.service"),
    ("deploy/debian/millrace.sysusers", "usr/lib/sysusers.d/millrace.conf"),
    ("deploy/debian/millrace.toml", "etc/millrace/millrace.toml"),
    ("deploy/debian/copyright", "usr/share/doc/millrace/copyright"),
    ("CHANGELOG.md", "usr/share/doc/millrace/changelog"),
];
/// The one of them that policy wants compressed.
const CHANGELOG: &str = "usr/share/doc/millrace/changelog";
/// The ones that belong to the administrator: an upgrade asks before it replaces them.
const CONFFILES: &str = "/etc/millrace/millrace.toml\n";

/// What dpkg runs around the installation, and what debconf asks.
const SCRIPTS: &[&str] = &["postinst", "prerm", "postrm"];
const QUESTIONS: &str = "templates";

/// How much work goes into a package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Care {
    /// It is handed to others: small, with its debug information beside it.
    Published,
    /// It is installed once, here.
    Tried,
}

/// `cargo xtask package`
pub(crate) fn command_line(words: &[String]) -> Outcome {
    if let ([word, package], true) = (words, namespace::is_inside())
        && [trial::INSIDE, trial::INSIDE_BOOTED].contains(&word.as_str())
    {
        return trial::inside(Path::new(package), word == trial::INSIDE_BOOTED);
    }
    let mut binary = None;
    let mut out = target().join("package");
    let mut is_tried = false;
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--try" => is_tried = true,
            "--binary" => binary = Some(absolute(words.next().ok_or(USAGE)?)?),
            "--out" => out = absolute(words.next().ok_or(USAGE)?)?,
            _ => return Err(USAGE.into()),
        }
    }
    let binary = match binary {
        Some(binary) => binary,
        None => {
            Build::Release.make()?;
            Build::Release.millrace()
        }
    };
    let package = build(&binary, &out, Care::Published)?;
    let bytes = std::fs::metadata(&package).map_or(0, |file| file.len());
    println!("{} ({} KiB)", package.display(), bytes / 1024);
    if is_tried { trial::run(&package, trial::INSIDE_BOOTED).map(drop) } else { Ok(()) }
}

/// Commands run in the root of the repository, and words are meant where they were typed.
fn absolute(word: &str) -> Result<PathBuf, String> {
    std::path::absolute(word).map_err(|error| format!("{word}: {error}"))
}

/// Builds the package of a program in a folder: its path.
fn build(binary: &Path, out: &Path, care: Care) -> Result<PathBuf, String> {
    if !binary.is_file() {
        return Err(format!("{} is not there: build it first", binary.display()));
    }
    let architecture = output(&mut command("dpkg", &["--print-architecture"]))?;
    let name = format!("millrace_{}_{}", env!("CARGO_PKG_VERSION"), architecture.trim());
    let stage = out.join(&name);
    let _ = std::fs::remove_dir_all(&stage);
    place_program(binary, &stage, &out.join(format!("{name}.debug")), care)?;
    for (from, to) in FILES {
        copy(&root().join(from), &stage.join(to))?;
    }
    // Without its own name and time in it: the same sources make the same bytes.
    run(command("gzip", &["-9", "--no-name"]).arg(stage.join(CHANGELOG)))?;
    run(command("chmod", &["-R", "u=rwX,go=rX"]).arg(&stage))?;
    let kibibytes = output(command("du", &["-k", "-s", "--apparent-size"]).arg(&stage))?;
    let facts = control::Facts {
        version: env!("CARGO_PKG_VERSION"),
        architecture: architecture.trim(),
        kibibytes: kibibytes.split_whitespace().next().unwrap_or("0"),
        needs: &output(command("readelf", &["--version-info", "--wide"]).arg(binary))?,
        description: &read(&root().join(FOLDER).join("description"))?,
    };
    place_control(&stage, &facts)?;
    let package = out.join(format!("{name}.deb"));
    let compression = if care == Care::Published { "-Zxz" } else { "-Znone" };
    let mut pack = command("dpkg-deb", &["--root-owner-group", compression, "--build"]);
    if let Ok(seconds) = output(&mut command("git", &["log", "-1", "--format=%ct"])) {
        pack.env("SOURCE_DATE_EPOCH", seconds.trim());
    }
    run(pack.arg(&stage).arg(&package))?;
    std::fs::remove_dir_all(&stage).map_err(|error| format!("{}: {error}", stage.display()))?;
    Ok(package)
}

/// The program without what only a debugger wants, which goes into a file of its own.
fn place_program(binary: &Path, stage: &Path, debug: &Path, care: Care) -> Outcome {
    let placed = stage.join("usr/bin/millrace");
    make_folder_of(&placed)?;
    let mut strip = command("objcopy", &["--strip-all"]);
    if care == Care::Published {
        run(command("objcopy", &["--only-keep-debug"]).arg(binary).arg(debug))?;
        let mut link = std::ffi::OsString::from("--add-gnu-debuglink=");
        link.push(debug);
        strip.arg(link);
    }
    run(strip.arg(binary).arg(&placed))
}

/// What dpkg reads about the package. All else is in place.
fn place_control(stage: &Path, facts: &control::Facts) -> Outcome {
    let mut files = Vec::new();
    files_below(stage, stage, &mut files)?;
    let sums = output(command("md5sum", &["--"]).args(&files).current_dir(stage))?;
    let folder = stage.join("DEBIAN");
    write(&folder.join("control"), &control::text(facts)?)?;
    write(&folder.join("conffiles"), CONFFILES)?;
    write(&folder.join("md5sums"), &sums)?;
    copy(&root().join(FOLDER).join(QUESTIONS), &folder.join(QUESTIONS))?;
    run(command("chmod", &["-R", "u=rwX,go=rX"]).arg(&folder))?;
    for script in SCRIPTS {
        let placed = folder.join(script);
        copy(&root().join(FOLDER).join(script), &placed)?;
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&placed, mode).map_err(|error| format!("{script}: {error}"))?;
    }
    Ok(())
}

/// The files below a folder, in an order of their own, as md5sums names them.
fn files_below(stage: &Path, folder: &Path, files: &mut Vec<PathBuf>) -> Outcome {
    let fail = |error: std::io::Error| format!("{}: {error}", folder.display());
    let entries: Result<Vec<_>, _> = std::fs::read_dir(folder).map_err(fail)?.collect();
    let mut paths: Vec<_> = entries.map_err(fail)?.iter().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        match path.strip_prefix(stage) {
            Ok(name) if path.is_file() => files.push(name.to_path_buf()),
            _ => files_below(stage, &path, files)?,
        }
    }
    Ok(())
}

fn make_folder_of(file: &Path) -> Outcome {
    let folder = file.parent().unwrap_or(file);
    std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))
}

fn copy(from: &Path, to: &Path) -> Outcome {
    make_folder_of(to)?;
    let copied = std::fs::copy(from, to).map(drop);
    copied.map_err(|error| format!("{}: {error}", from.display()))
}

fn write(path: &Path, text: &str) -> Outcome {
    make_folder_of(path)?;
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}
