//! The tests of the codec, one program: each that is linked costs every check its time.

mod bad_input;
mod fuzz_smoke;
mod golden;
#[path = "../samples/methods.rs"]
mod methods;
mod oracle;
