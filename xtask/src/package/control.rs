//! The control file: what the package is, and which packages the program needs.
//!
//! The libraries that it needs are read from the program: Debian's names and the oldest release that has what is used.

use std::collections::BTreeSet;

/// Who answers for the package, unless `DEBFULLNAME` and `DEBEMAIL` say otherwise, as Debian's tools have it.
const MAINTAINER: (&str, &str) = ("Millrace maintainers", "maintainers@millrace.invalid");

/// What the scripts need: the question at a purge, and the user.
const SCRIPTS_NEED: [&str; 2] =
    ["debconf (>= 0.5) | debconf-2.0", "systemd | systemd-standalone-sysusers | systemd-sysusers"];

/// Libraries of the C library's package.
const OF_LIBC: [&str; 6] =
    ["libc.so.", "libm.so.", "libpthread.so.", "libdl.so.", "librt.so.", "ld-linux"];

/// What is written into the file.
pub(super) struct Facts<'a> {
    pub(super) version: &'a str,
    pub(super) architecture: &'a str,
    /// What it takes on disk.
    pub(super) kibibytes: &'a str,
    /// What `readelf --version-info` says of the program.
    pub(super) needs: &'a str,
    /// The first line is the short one.
    pub(super) description: &'a str,
}

/// # Errors
/// The program needs a library that no package is known for.
pub(super) fn text(facts: &Facts) -> Result<String, String> {
    let from = |name: &str, default: &str| std::env::var(name).unwrap_or_else(|_| default.into());
    let maintainer =
        format!("{} <{}>", from("DEBFULLNAME", MAINTAINER.0), from("DEBEMAIL", MAINTAINER.1));
    let mut depends: Vec<String> = libraries(facts.needs)?.into_iter().collect();
    depends.extend(SCRIPTS_NEED.map(String::from));
    Ok(format!(
        "Package: millrace\nVersion: {}\nArchitecture: {}\nMaintainer: {maintainer}\nInstalled-Size: {}\nDepends: {}\n\
         Section: net\nPriority: optional\nDescription: {}\n",
        facts.version,
        facts.architecture,
        facts.kibibytes,
        depends.join(", "),
        facts.description.trim_end()
    ))
}

/// The packages of the libraries that a program needs.
fn libraries(needs: &str) -> Result<BTreeSet<String>, String> {
    let behind = |line: &str, word: &str| {
        let rest = line.split(word).nth(1)?;
        rest.split_whitespace().next().map(String::from)
    };
    let mut packages = BTreeSet::new();
    let mut newest: Option<(u32, u32)> = None;
    let mut is_libc = false;
    for line in needs.lines() {
        if let Some(file) = behind(line, " File: ") {
            is_libc = OF_LIBC.iter().any(|opening| file.starts_with(opening));
            match is_libc {
                true => {}
                false if file.starts_with("libgcc_s.so.") => {
                    packages.insert("libgcc-s1".to_string());
                }
                false => return Err(format!("the program needs {file}: of which package is it?")),
            }
        } else if let (Some(name), true) = (behind(line, " Name: "), is_libc) {
            newest = newest.max(release(&name));
        }
    }
    let (major, minor) = newest.ok_or("the program names no version of the C library")?;
    packages.insert(format!("libc6 (>= {major}.{minor})"));
    Ok(packages)
}

/// `GLIBC_2.34`, `GLIBC_2.2.5`: its first two numbers. What is private has none.
fn release(name: &str) -> Option<(u32, u32)> {
    let mut numbers = name.strip_prefix("GLIBC_")?.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEEDS: &str = "
Version needs section '.gnu.version_r' contains 3 entries:
 Addr: 0x0000000000001a28  Offset: 0x00001a28  Link: 8 (.dynstr)
  000000: Version: 1  File: libgcc_s.so.1  Cnt: 2
  0x0010:   Name: GCC_4.2.0  Flags: none  Version: 10
  0x0020:   Name: GCC_3.3  Flags: none  Version: 8
  0x0030: Version: 1  File: libc.so.6  Cnt: 3
  0x0040:   Name: GLIBC_2.9  Flags: none  Version: 13
  0x0050:   Name: GLIBC_2.34  Flags: none  Version: 6
  0x0060:   Name: GLIBC_2.2.5  Flags: none  Version: 3
";

    #[test]
    fn the_oldest_c_library_that_will_do_is_asked_for() {
        let found = libraries(NEEDS).unwrap();
        assert_eq!(Vec::from_iter(found), ["libc6 (>= 2.34)", "libgcc-s1"]);
    }

    #[test]
    fn a_library_of_an_unknown_package_is_no_package() {
        let needs = NEEDS.replace("libgcc_s.so.1", "libpq.so.5");
        assert!(libraries(&needs).unwrap_err().contains("libpq.so.5"));
        assert!(libraries("").is_err());
    }

    #[test]
    fn the_file_has_every_field_on_a_line_and_the_long_description_behind_the_short_one() {
        let facts = Facts {
            version: "1.2.3",
            architecture: "amd64",
            kibibytes: "17",
            needs: NEEDS,
            description: "short\n Long.\n",
        };
        let text = text(&facts).unwrap();
        assert!(text.starts_with("Package: millrace\nVersion: 1.2.3\nArchitecture: amd64\n"));
        assert!(text.contains("\nDepends: libc6 (>= 2.34), libgcc-s1, debconf (>= 0.5)"), "{text}");
        assert!(text.ends_with("\nDescription: short\n Long.\n"), "{text}");
    }
}
