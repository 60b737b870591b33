//! The rules: pure functions and types. No I/O, no clock, no randomness: they are parameters.
