// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Validates documents by the published schemas.

use rampart_model::Evaluation;

use crate::limited::Limited as _;
use crate::programs::{rampart, stdout};

/// Returns the validator of a document, by its name in `rampart schema`.
fn validator(name: &str) -> jsonschema::Validator {
    let directory = tempfile::tempdir().expect("a directory");
    let output = rampart(directory.path(), &["schema", name])
        .finish()
        .expect("rampart starts");
    let schema: serde_json::Value = serde_json::from_str(&stdout(&output, 0)).expect("a schema");
    jsonschema::validator_for(&schema).expect("a valid schema")
}

/// Asserts that the schema of this name accepts a document, and refuses an empty one.
///
/// # Panics
/// If it does not.
pub fn assert_fits(name: &str, document: &serde_json::Value) {
    let validator = validator(name);
    let errors = validator.iter_errors(document);
    let errors: Vec<String> = errors.map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{errors:?}");
    assert!(
        !validator.is_valid(&serde_json::json!({})),
        "the schema of {name} accepts an empty document"
    );
}

/// Asserts that the schema accepts an evaluation, and refuses it with a field of the wrong type.
///
/// # Panics
/// If it does not.
pub fn assert_valid(evaluation: &Evaluation) {
    let mut document = serde_json::to_value(evaluation).expect("json");
    assert_fits("evaluation", &document);
    document["records"][0]["exposure"]["samples"] = "many".into();
    assert!(
        !validator("evaluation").is_valid(&document),
        "the schema accepts a text as a number"
    );
}
