// SPDX-License-Identifier: Apache-2.0 OR MIT
//! docs/knobs.md is the catalogue: after a change run
//! `RAMPART_UPDATE=1 cargo test -p rampart-rules --test page`.

use std::path::Path;

use rampart_rules::{catalogue_document, entry_text, list_text, page};

#[test]
fn the_page_is_up_to_date() {
    let generated = page(&catalogue_document("test"));
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/knobs.md");
    if std::env::var_os("RAMPART_UPDATE").is_some() {
        std::fs::write(&file, &generated).expect("the page can be written");
    }
    let committed = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        committed == generated,
        "docs/knobs.md is not what the catalogue gives now; write it again with \
         RAMPART_UPDATE=1 cargo test -p rampart-rules --test page"
    );
}

#[test]
fn lists_and_entries_have_every_knob_within_the_width() {
    let catalogue = catalogue_document("test");
    let list = list_text(&catalogue);
    for knob in &catalogue.knobs {
        assert!(list.contains(&format!("  {} ", knob.name)), "{}", knob.name);
        let text = entry_text(knob);
        assert!(text.starts_with(&format!("{}: ", knob.name)));
        for line in text.lines() {
            let words = line.split_whitespace().count();
            assert!(line.chars().count() <= 80 || words <= 2, "{line}");
        }
    }
    for line in list.lines() {
        assert!(line.chars().count() <= 110, "{line}");
    }
}
