//! What PostgreSQL sends of its log.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| relay::pgoutput::read_any(data));
