// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The page's fixtures are the elements of the test documents, and the page's types are those of
//! the elements. Both are written here. After a change of the elements run
//! `RAMPART_UPDATE=1 cargo test -p rampart-present --test fixtures`.

mod support;
mod typescript;

use std::fs;
use std::path::{Path, PathBuf};

use rampart_model::{Evaluation, Nanos};
use rampart_present::PageData;

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
        "{path} is out of date; write it again with RAMPART_UPDATE=1 cargo test -p rampart-present --test fixtures"
    );
}

#[test]
fn documents_fit_the_schema_and_are_read_back() {
    let schema = schemars::schema_for!(Evaluation);
    let validator = jsonschema::validator_for(schema.as_value()).expect("the schema is one");
    for (name, evaluation) in support::all() {
        let text = serde_json::to_string(evaluation).expect("json");
        let value: serde_json::Value = serde_json::from_str(&text).expect("json");
        let errors: Vec<String> = validator
            .iter_errors(&value)
            .map(|error| error.to_string())
            .collect();
        assert!(errors.is_empty(), "{name}: {errors:?}");
        let read: Evaluation = serde_json::from_value(value).expect("an evaluation");
        assert_eq!(&read, evaluation, "{name}");
    }
}

#[test]
fn fixtures_of_the_page_are_up_to_date() {
    for (name, evaluation) in support::all() {
        let text = serde_json::to_string(&PageData::new(evaluation)).expect("json");
        same(
            &format!("../web/fixtures/{name}.json"),
            &format!("{text}\n"),
        );
    }
    let transfers = serde_json::to_string(support::named("transfers")).expect("json");
    same("tests/documents/transfers.json", &format!("{transfers}\n"));
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
