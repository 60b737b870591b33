//! A whole private stack on this machine: two `MariaDB` servers (so that no
//! transaction can span the network's own database and a tenant's even by
//! accident), `PostgreSQL` and one `TigerBeetle` replica, all under one folder,
//! on loopback ports of their own, supervised by one process.
//!
//! `settlenet dev` is that process. Others find it through the folder:
//! `stack.json` says what runs where ([`Description`]), `settlenet.toml` is a
//! configuration that fits it, and `control.sock` takes orders ([`Control`]).

mod account;
mod cleanup;
mod companion;
mod control;
mod description;
mod detach;
mod keeper;
mod layout;
mod mariadb;
mod postgres;
mod presence;
mod process;
mod server;
mod supervisor;
mod tigerbeetle;

pub use account::AccountError;
pub use cleanup::{DownError, take_down};
pub use companion::{Companion, end_companions, record_companion};
pub use control::{Control, ControlError, StackStatus};
pub use description::{Description, ServerDescription};
pub use detach::{DetachError, StartedBy, start_detached};
pub use keeper::{ServerState, ServerStatus};
pub use layout::LayoutError;
pub use server::{ServerError, ServerName};
pub use supervisor::{Options, StackError, supervise};

/// Says one line to whoever watches the supervisor. A closed terminal is no
/// reason to stop supervising, so a failed write is ignored.
fn say(line: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "stack: {line}");
}
