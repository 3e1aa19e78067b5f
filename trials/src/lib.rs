//! Proves the whole from outside: loads, faults and a checker that knows promises, not code.
//!
//! A trial puts load on a broker ([`workload`]), does it harm ([`chaos`]), writes down what clients
//! saw ([`history`]) and lets the [`checker`] judge. Load and chaos never decide whether a run was
//! good, and the checker never talks to a broker.

pub mod chaos;
pub mod checker;
pub mod differential;
pub mod history;
pub mod http;
pub mod ladder;
pub mod mariadb;
pub mod ports;
pub mod postgres;
pub mod providers;
pub mod redis_server;
pub mod relay;
pub mod relay_bench;
pub mod relay_sim;
pub mod siege;
pub mod sim;
pub mod work_bench;
pub mod work_soak;
pub mod workload;
