// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The published schema and the table of rules match the code. After a change run
//! `RAMPART_UPDATE=1 cargo test -p rampart-plan documents`.

use std::fs;
use std::path::{Path, PathBuf};

use rampart_plan::{parse, schema};
use rampart_rules::{PLAN_RULES, RuleBook};

fn docs(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../docs")
        .join(name)
}

fn same(name: &str, present: &str, wanted: &str) {
    if present != wanted && std::env::var_os("RAMPART_UPDATE").is_some() {
        fs::write(docs(name), wanted).expect("the file can be written");
        return;
    }
    assert!(
        present == wanted,
        "docs/{name} does not match the code; update it: RAMPART_UPDATE=1 cargo test -p rampart-plan documents"
    );
}

#[test]
fn the_schema_is_published() {
    let text = serde_json::to_string_pretty(&schema()).expect("json");
    let present = fs::read_to_string(docs("plan.schema.json")).unwrap_or_default();
    same("plan.schema.json", &present, &format!("{text}\n"));
}

#[test]
fn the_page_has_every_rule() {
    let present = fs::read_to_string(docs("plan.md")).expect("docs/plan.md");
    let begin = "| rule | severity | may be waived | expected | source |\n";
    let (head, rest) = present.split_once(begin).expect("the table of rules");
    let after = rest.lines().skip_while(|line| line.starts_with('|'));
    let mut table = String::from("|---|---|---|---|---|\n");
    for rule in PLAN_RULES {
        let id = match rule.book {
            RuleBook::Plan => format!("`{}`", rule.id),
            _ => format!("[`{0}`](knobs.md#{0})", rule.id),
        };
        let waivable = if rule.waivable { "yes" } else { "no" };
        table.push_str(&format!(
            "| {id} | {} | {waivable} | {} | {} |\n",
            rule.severity, rule.title, rule.source
        ));
    }
    let tail: Vec<&str> = after.collect();
    let wanted = format!("{head}{begin}{table}{}\n", tail.join("\n"));
    same("plan.md", &present, &wanted);
}

#[test]
fn the_examples_of_the_page_are_plans() {
    let page = fs::read_to_string(docs("plan.md")).expect("docs/plan.md");
    let mut examples = 0;
    for block in page.split("```toml\n").skip(1) {
        let text = block.split("```").next().unwrap_or_default();
        parse(text, "docs/plan.md").unwrap_or_else(|error| panic!("{error}"));
        examples += 1;
    }
    assert!(examples >= 3, "{examples}");
}
