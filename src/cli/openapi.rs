//! `settlenet openapi`: the description of the REST API, without a server.

use std::process::ExitCode;

use super::Failure;

/// Print the description of the REST API (`OpenAPI` 3.1, JSON), as a server gives it at
/// /openapi.json; needs no configuration and no database
#[derive(Debug, clap::Args)]
pub(super) struct Args;

pub(super) fn run(_: &Args) -> Result<ExitCode, Failure> {
    super::print(&crate::http::openapi().to_pretty_json()?);
    Ok(ExitCode::SUCCESS)
}
