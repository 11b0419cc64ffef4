// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Evaluation documents, each with the name of its file in `tests/documents`.

use std::sync::LazyLock;

use rampart_model::Evaluation;

/// The names: a complete evaluation, one that was killed, one CPU, nothing measured, many CPUs with
/// names that look like markup, disturbances with a crash, variants of a plan, cells.
pub(crate) const NAMES: [&str; 8] = [
    "full",
    "killed",
    "single-cpu",
    "empty",
    "wide",
    "transfers",
    "plan",
    "cells",
];

/// Returns the text of a document.
pub(crate) fn text(name: &str) -> String {
    let file = format!("{}/tests/documents/{name}.json", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(file).expect("a document of this name")
}

/// Returns every document with its name.
pub(crate) fn all() -> &'static [(&'static str, Evaluation); 8] {
    static ALL: LazyLock<[(&str, Evaluation); 8]> = LazyLock::new(|| {
        NAMES.map(|name| {
            (
                name,
                serde_json::from_str(&text(name)).expect("an evaluation"),
            )
        })
    });
    &ALL
}

/// Returns the document of this name.
pub(crate) fn named(name: &str) -> &'static Evaluation {
    let found = all().iter().find(|(of, _)| *of == name);
    &found.expect("a document of this name").1
}
