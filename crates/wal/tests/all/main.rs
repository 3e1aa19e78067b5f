//! The tests of the log that are quick, one program: each that is linked costs every check its time.

mod faults;
mod files;
mod followers;
mod golden;
#[path = "../common/model.rs"]
mod model;
mod refusal;
