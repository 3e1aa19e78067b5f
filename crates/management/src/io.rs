//! The server around the table of routes: sockets, the clock, and whatever waits. Decides nothing that a client could
//! see.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the shell: sockets, tasks, the clock, and a lock around what requests share"
)]

mod api;
mod aside;
mod asking;
mod assigned;
mod backup;
mod body;
mod books;
mod boot;
mod browser;
mod change;
mod client;
mod code_login;
mod companions;
mod connections;
mod console;
mod deaths;
mod describing;
mod disk;
mod exchanges;
mod fronts;
mod groups;
mod history;
mod import;
mod lines;
mod live;
mod locks;
mod model;
mod neighbours;
mod orders;
mod peek_pages;
mod peeks;
mod perform;
mod places;
mod problems;
mod purges;
mod response;
mod retries;
mod retry_registry;
mod seen;
mod server;
mod sessions;
mod standing;
mod told;

pub use api::Api;
pub use boot::BootDefinitions;
pub use neighbours::answer as answer_neighbours;
pub use server::serve;
