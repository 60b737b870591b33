//! The `settlenet` program.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    settlenet::cli::main()
}
