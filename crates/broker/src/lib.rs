//! Charter to come.
