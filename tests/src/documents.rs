// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Validates documents by the published schemas.

use rampart_model::Evaluation;

use crate::limited::Limited as _;
use crate::programs::{rampart, stdout};

/// Returns the validator of a document, by its name in `rampart schema`.
fn validator(word: &str) -> jsonschema::Validator {
    let directory = tempfile::tempdir().expect("a directory");
    let output = rampart(directory.path(), &["schema", word])
        .finish()
        .expect("rampart starts");
    let schema: serde_json::Value = serde_json::from_str(&stdout(&output, 0)).expect("a schema");
    jsonschema::validator_for(&schema).expect("a valid schema")
}

/// Asserts that the schema accepts a document, and does not accept an empty one.
///
/// # Panics
/// If it does not.
pub fn assert_fits(word: &str, document: &serde_json::Value) {
    let validator = validator(word);
    let errors = validator.iter_errors(document);
    let errors: Vec<String> = errors.map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{errors:?}");
    assert!(
        !validator.is_valid(&serde_json::json!({})),
        "the schema accepts anything"
    );
}

/// Asserts that the published schema accepts an evaluation, and refuses an invalid one.
///
/// # Panics
/// If it does not.
pub fn assert_valid(evaluation: &Evaluation) {
    let validator = validator("evaluation");
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
