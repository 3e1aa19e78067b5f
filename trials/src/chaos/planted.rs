//! Bugs planted on purpose, each of which must be caught.
