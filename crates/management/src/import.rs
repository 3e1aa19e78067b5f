//! Definitions that are brought in.

use broker::operator::{NewBinding, NewExchange, NewQueue};
use machine::CatalogCommand;

/// What is brought in, in this order.
#[derive(Debug, Default)]
pub(crate) struct Import {
    /// Vhosts.
    pub(crate) vhosts: Vec<CatalogCommand>,
    /// Users whose passwords are hashed already, and permissions.
    pub(crate) users: Vec<CatalogCommand>,
    /// Users whose passwords are not: name, password, tags.
    pub(crate) plain_users: Vec<(String, String, Vec<String>)>,
    pub(crate) permissions: Vec<CatalogCommand>,
    pub(crate) policies: Vec<CatalogCommand>,
    pub(crate) exchanges: Vec<NewExchange>,
    pub(crate) queues: Vec<NewQueue>,
    pub(crate) bindings: Vec<NewBinding>,
}
