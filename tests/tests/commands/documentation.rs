// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tests and files that the documents name exist.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Returns the documents that people write; docs/knobs.md is generated, and names settings of the kernel.
fn documents() -> Vec<PathBuf> {
    let docs = fs::read_dir(root().join("docs")).expect("docs");
    let docs = docs.flatten().map(|entry| entry.path());
    let docs = docs.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    let top = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].map(|name| root().join(name));
    docs.filter(|path| !path.ends_with("knobs.md"))
        .chain(top)
        .collect()
}

/// Appends the source files below a directory.
fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    const SKIPPED: [&str; 4] = ["target", "node_modules", ".git", "dist"];
    for entry in fs::read_dir(directory).expect("a directory").flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let is_source = |extension: &str| path.extension().is_some_and(|other| other == extension);
        if path.is_dir() && !SKIPPED.iter().any(|skipped| name == *skipped) {
            sources(&path, found);
        } else if ["rs", "c", "h"].into_iter().any(is_source) {
            found.push(path);
        }
    }
}

/// Returns the texts between backquotes.
fn quoted(document: &str) -> impl Iterator<Item = &str> {
    document.split('`').skip(1).step_by(2)
}

/// Returns whether a text is the name of a test: five or more words. Names of figures begin with the product's.
fn is_test_name(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    text.matches('_').count() >= 4 && text.bytes().all(is_part) && !text.starts_with("rampart_")
}

/// Returns whether a text is the path of a source file.
fn is_source_path(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./".contains(&byte);
    [".rs", ".c", ".h"].iter().any(|end| text.ends_with(end)) && text.bytes().all(is_part)
}

#[test]
fn every_test_and_source_file_named_in_a_document_exists() {
    let mut files = Vec::new();
    sources(root(), &mut files);
    let texts = files
        .iter()
        .filter_map(|file| fs::read_to_string(file).ok());
    let code: String = texts.collect();
    let (mut named, mut missing) = (0, Vec::new());
    for document in documents() {
        let text = fs::read_to_string(&document).expect("a document");
        for name in quoted(&text) {
            let exists = match name {
                test if is_test_name(test) => code.contains(&format!("fn {test}()")),
                path if is_source_path(path) => files.iter().any(|file| file.ends_with(path)),
                _ => continue,
            };
            named += 1;
            if !exists {
                missing.push(format!("{}: {name}", document.display()));
            }
        }
    }
    assert!(named > 30, "only {named} names were found");
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn every_link_to_a_file_has_a_target() {
    for document in documents() {
        let text = fs::read_to_string(&document).expect("a document");
        let targets = text.split("](").skip(1);
        let targets = targets.filter_map(|rest| rest.split([')', '#']).next());
        for target in targets.filter(|target| !target.is_empty() && !target.contains("://")) {
            let file = document.with_file_name(target);
            assert!(file.exists(), "{}: {target}", document.display());
        }
    }
}
