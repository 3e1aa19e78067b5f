//! The configuration of `millrace serve`: file, then environment, then flags.
