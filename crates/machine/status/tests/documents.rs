// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table of rules in docs/status.md matches the code. After a change run
//! `RAMPART_UPDATE=1 cargo test -p rampart-status --test documents`.

use std::fs;
use std::path::Path;

use rampart_model::StatusSubject;
use rampart_rules::{STATE_RULES, StateRule};

#[test]
fn the_page_has_every_rule() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/status.md");
    let present = fs::read_to_string(&path).expect("docs/status.md");
    let begin = "| rule | subject | severity | expected |\n";
    let (head, rest) = present.split_once(begin).expect("the table of rules");
    let tail: Vec<&str> = rest
        .lines()
        .skip_while(|line| line.starts_with('|'))
        .collect();
    let mut table = String::from("|---|---|---|---|\n");
    for StateRule { rule, subject, .. } in STATE_RULES {
        let subject = match subject {
            StatusSubject::Drift => "drift",
            StatusSubject::Colocation => "colocation",
            StatusSubject::UnwantedActivity => "unwanted activity",
        };
        table.push_str(&format!(
            "| `{}` | {subject} | {} | {} |\n",
            rule.id, rule.severity, rule.title
        ));
    }
    let expected = format!("{head}{begin}{table}{}\n", tail.join("\n"));
    if std::env::var_os("RAMPART_UPDATE").is_some() {
        fs::write(&path, expected).expect("docs/status.md");
    } else {
        assert!(
            present == expected,
            "docs/status.md does not match the code; update it: RAMPART_UPDATE=1 cargo test -p rampart-status --test documents"
        );
    }
}
