//! The master database.
