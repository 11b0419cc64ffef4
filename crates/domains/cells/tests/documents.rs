// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks that the published schema matches the code. After a change run `RAMPART_UPDATE=1 cargo
//! test -p rampart-cells --test documents`.

use std::fs;
use std::path::Path;

#[test]
fn published_schema_of_a_description_matches_the_code() {
    let schema = schemars::schema_for!(rampart_cells::describe::Description);
    let text = serde_json::to_string_pretty(&schema).expect("json");
    let wanted = format!("{text}\n");
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs");
    let file = docs.join("cell-description.schema.json");
    if std::env::var_os("RAMPART_UPDATE").is_some() {
        fs::write(&file, &wanted).expect("the file can be written");
    }
    let present = fs::read_to_string(&file).unwrap_or_default();
    assert!(
        present == wanted,
        "docs/cell-description.schema.json differs from the code; update it with RAMPART_UPDATE=1 cargo test -p rampart-cells --test documents"
    );
}
