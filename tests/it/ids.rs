//! `settlenet ids`.

use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::harness::program;

fn ids(args: &[&str]) -> Output {
    let mut command = Command::new(program());
    command.arg("ids").args(args).output().unwrap()
}

#[test]
fn the_id_of_an_account() {
    let output = ids(&["account", "broker.1.position.USD"]);
    assert!(output.status.success());
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        "input  broker.1.position.USD\n\
         uuid   bf6bd73a-36a7-5f3f-965a-e1440cb825e3\n\
         tb_id  254442488288994900157375886284639708643\n"
    );
}

#[test]
fn the_id_of_a_transfer_as_json() {
    let uuid = "0193A5B0-7C3E-7ABC-8DEF-0123456789AB";
    let output = ids(&["transfer", uuid, "0", "--json"]);
    assert!(output.status.success());
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        printed,
        json!({
            "input": "0193a5b0-7c3e-7abc-8def-0123456789ab:0",
            "uuid": "7ab8bbdc-343d-52a8-a472-9e580413ca17",
            "tb_id": "163125008364689136109098364712323893783",
        })
    );
}

#[test]
fn what_is_no_name_is_a_wrong_command_line() {
    for args in [
        &["account", "user.1.usd"][..],
        &["account", "wallet.1.USD"],
        &["transfer", "no-uuid", "0"],
        &["transfer", "0193a5b0-7c3e-7abc-8def-0123456789ab", "-1"],
        &["account"],
    ] {
        let output = ids(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(output.stdout.is_empty(), "{args:?}");
    }
}
