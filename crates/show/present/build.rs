// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Embeds the interactive page if it was built, so that the command builds without Node.js.

use std::path::{Path, PathBuf};
use std::{env, fs};

/// The empty elements that are filled; `src/document.rs` searches for the same texts.
const PLACEHOLDERS: [&str; 2] = [
    r#"<script type="application/json" id="elements"></script>"#,
    r#"<script type="application/json" id="evaluation"></script>"#,
];

fn main() {
    let page = Path::new("../web/dist/page.html");
    // A path that does not exist would make Cargo run this each time.
    let watched = if page.exists() {
        page
    } else {
        Path::new("../web")
    };
    println!("cargo::rerun-if-changed={}", watched.display());
    let text = fs::read_to_string(page).unwrap_or_default();
    let fits = PLACEHOLDERS
        .iter()
        .all(|placeholder| text.matches(placeholder).count() == 1);
    if !text.is_empty() && !fits {
        println!(
            "cargo::warning=crates/show/web/dist/page.html is out of date, so reports get the plain page; \
             build it again: npm run build"
        );
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("Cargo sets OUT_DIR"));
    let embedded = if fits { text.as_str() } else { "" };
    fs::write(out.join("page.html"), embedded).expect("OUT_DIR can be written");
}
