//! What processes of the program promise, one program: each that is linked costs every check its time.

mod admin;
mod backups;
mod client_tls;
mod commands_tls;
mod dashboards;
mod dead_letters;
mod describe;
mod dev;
mod doctor;
mod external;
mod management;
mod metrics;
mod moving;
#[path = "../support/node.rs"]
mod node;
mod oauth;
mod process;
mod readme;
mod redelivered;
mod rescue;
mod secrets;
mod spans;
mod supervised;
mod top;
