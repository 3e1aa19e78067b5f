//! The user that an operator wants a new node or cluster to begin with, in place of `guest`.
//!
//! Nothing but the catalog says whether it is a beginning: `guest` still has the password that everybody knows, and
//! there is no user beside it and the one that is to be made. `guest` goes last, so that a crash in between is
//! mended by the next start.

use machine::{Catalog, CatalogCommand};

const GUEST: &str = "guest";
/// Of the user `guest` of a new catalog.
const GUEST_PASSWORD: &str = "guest";
const VHOST: &str = "/";
const ADMINISTRATOR: &str = "administrator";

/// A name and a password. `Debug` does not show the password.
#[derive(Clone, PartialEq, Eq)]
pub struct FirstUser {
    pub name: String,
    pub password: String,
}

impl std::fmt::Debug for FirstUser {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "FirstUser {{ name: {:?}, password: <hidden> }}", self.name)
    }
}

/// What is to be done about the first user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// It is a beginning.
    Make,
    /// The user is there, with that password.
    Made,
    /// There are users already, and what was asked for counts no more.
    TooLate,
}

/// `is_right` says whether a password is the one that a hash was made of.
pub(crate) fn plan(
    catalog: &Catalog,
    wanted: &FirstUser,
    is_right: impl Fn(&str, &str) -> bool,
) -> Plan {
    let is_alone = catalog.users().all(|user| user.name == GUEST || user.name == wanted.name);
    if is_alone && has_known_guest(catalog, &is_right) {
        return Plan::Make;
    }
    match catalog.user(&wanted.name) {
        Some(user) if is_right(&user.password_hash, &wanted.password) => Plan::Made,
        Some(_) | None => Plan::TooLate,
    }
}

/// Whether there is a `guest` with the password that everybody knows.
pub(crate) fn has_known_guest(catalog: &Catalog, is_right: impl Fn(&str, &str) -> bool) -> bool {
    let guest = catalog.user(GUEST);
    guest.is_some_and(|guest| is_right(&guest.password_hash, GUEST_PASSWORD))
}

/// Whether there is no user but a `guest` with the password that everybody knows.
pub(crate) fn is_guest_alone(catalog: &Catalog, is_right: impl Fn(&str, &str) -> bool) -> bool {
    catalog.users().all(|user| user.name == GUEST) && has_known_guest(catalog, is_right)
}

/// Makes the user, and takes `guest` away.
pub(crate) fn commands(name: &str, password_hash: String) -> Vec<CatalogCommand> {
    let mut commands = new_user(name, password_hash);
    if name != GUEST {
        commands.push(CatalogCommand::DeleteUser { name: GUEST.to_owned() });
    }
    commands
}

/// Makes the user, who may do everything.
pub(crate) fn new_user(name: &str, password_hash: String) -> Vec<CatalogCommand> {
    let all = || ".*".to_owned();
    vec![
        CatalogCommand::PutUser {
            name: name.to_owned(),
            password_hash,
            tags: vec![ADMINISTRATOR.to_owned()],
        },
        CatalogCommand::SetPermissions {
            user: name.to_owned(),
            vhost: VHOST.to_owned(),
            configure: all(),
            write: all(),
            read: all(),
        },
    ]
}

#[cfg(test)]
mod tests {
    use machine::Applied;

    use super::*;
    use crate::password;

    fn ann(password: &str) -> FirstUser {
        FirstUser { name: "ann".to_owned(), password: password.to_owned() }
    }

    fn apply(catalog: &mut Catalog, commands: Vec<CatalogCommand>) {
        for command in commands {
            let at = Applied { index: catalog.version() + 1, time_ms: 0 };
            catalog.apply(at, command, &mut Vec::new());
        }
    }

    fn planned(catalog: &Catalog, wanted: &FirstUser) -> Plan {
        plan(catalog, wanted, password::verify)
    }

    #[test]
    fn a_beginning_gets_its_user_in_place_of_guest_and_only_once() {
        let mut catalog = Catalog::new(8);
        assert_eq!(planned(&catalog, &ann("secret")), Plan::Make);
        let commands = commands("ann", password::hash("secret", [1; 16]));
        // A crash before guest is gone.
        apply(&mut catalog, commands[..1].to_vec());
        assert_eq!(planned(&catalog, &ann("secret")), Plan::Make);
        apply(&mut catalog, commands);
        assert_eq!(planned(&catalog, &ann("secret")), Plan::Made);
        assert_eq!(planned(&catalog, &ann("other")), Plan::TooLate);
        assert!(catalog.user("guest").is_none());
        let user = catalog.user("ann").unwrap();
        assert!(user.has_tag(ADMINISTRATOR) && password::verify(&user.password_hash, "secret"));
        assert!(catalog.permissions("ann", "/").unwrap().configure.allows("anything"));
    }

    #[test]
    fn guest_may_get_a_password_of_its_own() {
        let mut catalog = Catalog::new(8);
        let wanted = FirstUser { name: "guest".to_owned(), password: "secret".to_owned() };
        assert_eq!(planned(&catalog, &wanted), Plan::Make);
        apply(&mut catalog, commands("guest", password::hash("secret", [1; 16])));
        assert!(!has_known_guest(&catalog, password::verify));
        assert_eq!(planned(&catalog, &wanted), Plan::Made);
    }

    #[test]
    fn who_has_users_already_keeps_them() {
        let mut catalog = Catalog::new(8);
        apply(&mut catalog, commands("bob", password::hash("x", [1; 16]))[..2].to_vec());
        assert_eq!(planned(&catalog, &ann("secret")), Plan::TooLate);
    }
}
