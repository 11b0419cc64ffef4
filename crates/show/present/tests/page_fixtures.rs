// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Generated files: the documents as the model writes them, the elements of each document for the
//! tests of the page, and the types of the elements. After a change of the model or the elements run
//! `RAMPART_UPDATE=1 cargo test -p rampart-present --test tests`.

use std::fs;
use std::path::{Path, PathBuf};

use rampart_model::{Evaluation, Nanos};
use rampart_present::PageData;

use crate::{documents, typescript};

fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Compares a generated file with the committed one, or writes it.
fn same(path: &str, generated: &str) {
    let file = file(path);
    if std::env::var_os("RAMPART_UPDATE").is_some() {
        fs::write(&file, generated).expect("the file can be written");
    }
    let committed = fs::read_to_string(&file).unwrap_or_default();
    assert!(
        committed == generated,
        "{path} is out of date; fix: RAMPART_UPDATE=1 cargo test -p rampart-present --test tests"
    );
}

#[test]
fn documents_fit_the_schema_and_are_as_the_model_writes_them() {
    let schema = schemars::schema_for!(Evaluation);
    let validator = jsonschema::validator_for(schema.as_value()).expect("a schema");
    for (name, evaluation) in documents::all() {
        let value = serde_json::to_value(evaluation).expect("json");
        let errors: Vec<String> = validator
            .iter_errors(&value)
            .map(|error| error.to_string())
            .collect();
        assert!(errors.is_empty(), "{name}: {errors:?}");
        let text = serde_json::to_string(evaluation).expect("json");
        same(
            &format!("tests/documents/{name}.json"),
            &format!("{text}\n"),
        );
    }
}

#[test]
fn fixtures_of_the_page_are_up_to_date() {
    for (name, evaluation) in documents::all() {
        let text = serde_json::to_string(&PageData::new(evaluation)).expect("json");
        same(
            &format!("../web/fixtures/{name}.json"),
            &format!("{text}\n"),
        );
    }
}

#[test]
fn the_page_has_the_types_of_the_elements() {
    let settings = schemars::generate::SchemaSettings::default().for_serialize();
    let schema = settings.into_generator().into_root_schema_for::<PageData>();
    same(
        "../web/src/elements.ts",
        &typescript::types(schema.as_value()),
    );
}

/// Times and quantiles that the page writes on axes as the model does.
#[test]
fn the_page_formats_times_as_the_model() {
    let mut times = vec![
        0,
        1,
        999,
        1_000,
        1_071_000,
        84_300,
        119_900_000_000,
        120_000_000_000,
    ];
    let mut value = 3u64;
    while value < 1 << 52 {
        times.push(value);
        value = value * 7 + 1;
    }
    let times: Vec<(u64, String)> = times
        .into_iter()
        .map(|nanos| (nanos, Nanos(nanos).to_string()))
        .collect();
    let agreed = serde_json::json!({ "times": times });
    same("../web/fixtures/agreed.json", &format!("{agreed}\n"));
}
