//! Everything that speaks SQL.
