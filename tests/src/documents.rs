// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether what is written is what the published schemas say.

use rampart_model::Evaluation;

use crate::limited::Limited as _;
use crate::programs::{rampart, stdout};

/// The published schema accepts an evaluation, and not just anything.
///
/// # Panics
/// If it does not.
pub fn assert_valid(evaluation: &Evaluation) {
    let directory = tempfile::tempdir().expect("a directory");
    let output = rampart(directory.path(), &["schema", "evaluation"])
        .finish()
        .expect("rampart starts");
    let schema: serde_json::Value = serde_json::from_str(&stdout(&output, 0)).expect("a schema");
    let validator = jsonschema::validator_for(&schema).expect("a valid schema");
    let document = serde_json::to_value(evaluation).expect("json");
    let errors: Vec<String> = validator
        .iter_errors(&document)
        .map(|error| error.to_string())
        .collect();
    assert!(errors.is_empty(), "{errors:?}");
    let mut spoiled = document;
    spoiled["records"][0]["exposure"]["samples"] = "many".into();
    assert!(!validator.is_valid(&spoiled), "the schema accepts anything");
}
