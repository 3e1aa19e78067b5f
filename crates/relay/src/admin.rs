//! What an operator does with an outbox: install it, examine it, look at it, bring rows back, sweep old ones.
//!
//! Everything here is text and judgement: which statements there are, what their answers mean, how it is said.
//! `io::admin` runs the statements. Answers come as JSON, one array for a statement, so that a question and the
//! form of its answer stand side by side.

pub mod doctor;
mod finding;
pub(crate) mod ids;
pub mod install;
pub mod purge;
pub mod replay;
pub(crate) mod shape;
pub mod status;
pub(crate) mod words;

pub use finding::{Finding, Grade, Report};
pub use shape::{Column, Index, Leaf, Shape};
