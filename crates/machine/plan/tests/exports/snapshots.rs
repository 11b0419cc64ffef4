// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Snapshots of all files: `INSTA_UPDATE=always cargo test -p rampart-plan exports`.

use super::{DESK, PLANT, Resolved, shown};

#[test]
fn a_plant_on_two_sockets() {
    for (tool, exported) in Resolved::on("server", PLANT).exports() {
        insta::assert_snapshot!(format!("plant-{tool}"), shown(&exported));
    }
}

#[test]
fn a_desk_on_a_laptop() {
    for (tool, exported) in Resolved::on("laptop", DESK).exports() {
        insta::assert_snapshot!(format!("desk-{tool}"), shown(&exported));
    }
}
