//! settlenet: a server for a network of brokers that settle with each other.
#![forbid(unsafe_code)]
