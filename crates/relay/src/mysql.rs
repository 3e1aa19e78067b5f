//! MariaDB and MySQL as a source: statements, and what is judged about a server and a table. No waiting here: that is
//! [`io`](crate::io)'s.

pub mod binlog;
pub mod doctor;
pub mod install;
pub mod shape;
pub mod sql;
pub mod version;

/// Whether a database URL is one of these servers'.
pub fn is_mysql(url: &str) -> bool {
    url.starts_with("mysql://") || url.starts_with("mariadb://")
}
