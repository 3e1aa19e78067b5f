//! Which servers the relay can work with: those that skip locked rows.

/// The first versions with `SKIP LOCKED`.
const MARIADB: (u32, u32) = (10, 6);
const MYSQL: (u32, u32) = (8, 0);

/// Whether the server that calls itself `said` (`10.11.6-MariaDB-0+deb12u1`, `8.0.36`) will do.
///
/// # Errors
/// In words: it is too old.
pub fn check(said: &str) -> Result<(), String> {
    let is_mariadb = said.contains("MariaDB");
    let (name, least) = if is_mariadb { ("MariaDB", MARIADB) } else { ("MySQL", MYSQL) };
    // Some MariaDB servers put a version for old clients before their own.
    let number = said.strip_prefix("5.5.5-").filter(|_| is_mariadb).unwrap_or(said);
    let mut parts =
        number.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    let has = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    match has >= least {
        true => Ok(()),
        false => Err(format!(
            "the server is {name} {}.{}, which cannot skip locked rows: the relay needs {name} {}.{} or newer",
            has.0, has.1, least.0, least.1
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_that_skip_locked_rows_will_do() {
        for said in [
            "10.11.19-MariaDB-0+deb12u1",
            "5.5.5-10.6.0-MariaDB",
            "11.4.2-MariaDB",
            "8.0.36",
            "8.4.0",
            "9.1.0",
        ] {
            assert_eq!(check(said), Ok(()), "{said}");
        }
        for said in ["10.5.9-MariaDB", "5.5.5-10.3.1-MariaDB", "5.7.44-log", ""] {
            assert!(check(said).is_err(), "{said}");
        }
    }
}
