// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The page's fixtures are these made-up documents, and the page's types are the model's. Both
//! are written here, so that neither can drift: after a change of the model run
//! `RAMPART_UPDATE=1 cargo test -p rampart-present --test fixtures`.

mod support;
mod typescript;

use std::fs;
use std::path::{Path, PathBuf};

use rampart_model::{Distribution, Evaluation, Nanos};

fn web(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../web")
        .join(path)
}

/// Compares a generated file with the committed one, or writes it.
fn same(path: &str, generated: &str) {
    let file = web(path);
    if std::env::var_os("RAMPART_UPDATE").is_some() {
        fs::write(&file, generated).expect("the file can be written");
    }
    let committed = fs::read_to_string(&file).unwrap_or_default();
    assert!(
        committed == generated,
        "web/{path} is not what the model gives now; write it again with RAMPART_UPDATE=1 cargo test -p rampart-present --test fixtures"
    );
}

#[test]
fn fixtures_are_up_to_date_and_fit_the_schema() {
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
        same(&format!("fixtures/{name}.json"), &format!("{text}\n"));
    }
}

#[test]
fn the_page_knows_the_types_of_the_model() {
    same(
        "src/evaluation.ts",
        &typescript::types(schemars::schema_for!(Evaluation).as_value()),
    );
}

/// What the page must say or compute just as the model does: times as text, quantiles.
#[test]
fn the_page_agrees_with_the_model() {
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
    let mut quantiles = Vec::new();
    for record in &support::named("full").records {
        let mut all = Distribution::default();
        for cpu in &record.cpus {
            all.merge(&cpu.series[0].seen);
        }
        for part in [0.0, 0.25, 0.5, 0.99, 0.9999, 1.0] {
            quantiles.push((&record.id, part, all.quantile(part)));
        }
    }
    let agreed = serde_json::json!({ "times": times, "quantiles": quantiles });
    same("fixtures/agreed.json", &format!("{agreed}\n"));
}
