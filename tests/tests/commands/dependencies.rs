// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Licences and duplicate versions of the dependencies, by the rules of `deny.toml`.
//!
//! cargo-deny checks the same and known vulnerabilities (`make test-dependencies`). It takes minutes to build,
//! so these checks do not need it.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use rampart_tests::limited::Limited as _;
use serde_json::Value;
use spdx::{Expression, LicenseReq, ParseMode};

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

fn rules() -> toml::Table {
    let text = std::fs::read_to_string(root().join("deny.toml")).expect("deny.toml");
    text.parse().expect("TOML")
}

/// Returns the packages of one target of `deny.toml`, as `cargo metadata` prints them.
fn packages(target: &str) -> Vec<Value> {
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--locked",
            "--format-version",
            "1",
            "--filter-platform",
            target,
        ])
        .current_dir(root())
        .finish()
        .expect("cargo");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let mut metadata: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    // `packages` lists every platform, `resolve` only this one.
    let resolved: Vec<String> = metadata["resolve"]["nodes"]
        .as_array()
        .expect("nodes")
        .iter()
        .map(|node| node["id"].as_str().expect("an id").to_owned())
        .collect();
    let Value::Array(packages) = metadata["packages"].take() else {
        panic!("no packages");
    };
    packages
        .into_iter()
        .filter(|package| resolved.iter().any(|id| *id == package["id"]))
        .collect()
}

fn text<'a>(package: &'a Value, field: &str) -> &'a str {
    package[field].as_str().unwrap_or_default()
}

fn is_allowed(requirement: &LicenseReq, allowed: &[&str]) -> bool {
    // An exception only adds permissions.
    requirement
        .license
        .id()
        .is_some_and(|id| allowed.contains(&id.name))
}

#[test]
fn licences_and_versions_are_those_of_deny_toml() {
    let rules = rules();
    let allowed: Vec<&str> = rules["licenses"]["allow"]
        .as_array()
        .expect("licenses.allow")
        .iter()
        .filter_map(toml::Value::as_str)
        .collect();
    let skipped: Vec<(&str, &str)> = rules["bans"]["skip"]
        .as_array()
        .expect("bans.skip")
        .iter()
        .filter_map(|entry| entry["crate"].as_str()?.split_once('@'))
        .collect();
    let mut violations = Vec::new();
    for target in rules["graph"]["targets"].as_array().expect("graph.targets") {
        let mut versions: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for package in packages(target.as_str().expect("a target")) {
            let (name, version) = (text(&package, "name"), text(&package, "version"));
            let licence = text(&package, "license");
            let is_accepted = Expression::parse_mode(licence, ParseMode::LAX)
                .is_ok_and(|licence| licence.evaluate(|one| is_allowed(one, &allowed)));
            if !is_accepted {
                violations.push(format!("{name} {version} has the licence `{licence}`"));
            }
            let is_skipped = skipped.iter().any(|(skipped, prefix)| {
                *skipped == name
                    && version
                        .strip_prefix(prefix)
                        .is_some_and(|rest| rest.starts_with('.'))
            });
            if !is_skipped {
                versions
                    .entry(name.to_owned())
                    .or_default()
                    .push(version.to_owned());
            }
        }
        violations.extend(
            versions
                .iter()
                .filter(|(_, versions)| versions.len() > 1)
                .map(|(name, versions)| format!("{name} in versions {}", versions.join(", "))),
        );
    }
    violations.sort();
    violations.dedup();
    assert!(
        violations.is_empty(),
        "deny.toml does not allow: {violations:#?}"
    );
}
