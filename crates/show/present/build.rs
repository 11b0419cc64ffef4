// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sees to it that the page which [`html`] fills was built, and says how to build it if not.

use std::fs;
use std::path::Path;

/// What the page is filled at; `src/document.rs` searches for the same text.
const PLACEHOLDER: &str = r#"<script type="application/json" id="evaluation"></script>"#;

fn main() {
    let page = Path::new("../web/dist/page.html");
    println!("cargo::rerun-if-changed={}", page.display());
    match fs::read_to_string(page) {
        Ok(text) if text.matches(PLACEHOLDER).count() == 1 => {}
        Ok(_) => println!(
            "cargo::error=web/dist/page.html holds no single `{PLACEHOLDER}`; build it again with `make web`"
        ),
        Err(error) => println!(
            "cargo::error=the report's page web/dist/page.html cannot be read ({error}); build it with `make web`"
        ),
    }
}
