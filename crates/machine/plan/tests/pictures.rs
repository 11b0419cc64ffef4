// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pictures of resolved plans: 2 and 128 CPUs in 80 columns, and a page with escaped texts.

use crate::example_machines::{self, machine, quad, recorded, resolve, resolve_in};
use rampart_model::{KnobAction, KnobChoice, ResolvedPlan};
use rampart_present::{TerminalOptions, plan_page, plan_picture};

fn terminal(plan: &ResolvedPlan, width: u16) -> String {
    let options = TerminalOptions {
        width,
        colour: false,
    };
    rampart_present::terminal(&plan_picture(plan), options)
}

fn wide(text: &str) -> Vec<&str> {
    // Commands and fingerprints are not broken, so that they can be copied.
    let long = |line: &&str| line.chars().count() > 80;
    text.lines()
        .filter(long)
        .filter(|line| line.contains('│') || line.contains("node "))
        .collect()
}

#[test]
fn draws_two_cpus() {
    let (machine, around) = recorded("virtual-machine");
    let plan = "[machine]\nhousekeeping = \"0\"\n[[domain]]\nname = \"control\"\nkind = \"task\"\ncpus = \"1\"\npolicy = { fifo = 10 }\n";
    let text = terminal(&resolve_in(&machine, plan, &around), 80);
    assert!(text.starts_with("node 0   CPUs 0-1         #A\n"), "{text}");
    assert!(text.contains("# housekeeping   A control\n"), "{text}");
    assert!(text.contains("L3 cache 105 MiB"), "{text}");
    assert!(
        text.contains("│ 1    ┆ control ┆ real-time    ┆ fifo:10 ┆ 0    │"),
        "{text}"
    );
    assert!(wide(&text).is_empty(), "{text}");
}

#[test]
fn draws_128_cpus_in_80_columns() {
    let cores: Vec<String> = (0..64)
        .map(|core| format!("{core},{}", core + 64))
        .collect();
    let cores: Vec<&str> = cores.iter().map(String::as_str).collect();
    let halves = ["0-31,64-95", "32-63,96-127"];
    let mut machine = machine(&cores, &halves, &halves);
    for core in &cores {
        machine.topology.caches.push(rampart_model::Cache {
            level: 2,
            kind: rampart_model::CacheKind::Unified,
            size: 1 << 20,
            shared_by: example_machines::cpus(core),
        });
    }
    let plan = "[[domain]]\nname = \"a\"\nkind = \"task\"\ncpus = { count = 12 }\n[[domain]]\nname = \"g\"\nkind = \"vm\"\nvcpus = { count = 30, policy = { fifo = 1 } }\nmemory = { size = \"64MiB\" }\n";
    let resolved = resolve(&machine, plan);
    let text = terminal(&resolved, 80);
    assert!(wide(&text).is_empty(), "{text}");
    assert!(text.lines().count() < 100, "{text}");
    assert!(text.contains("vCPU 0-29"), "{text}");
    let signs = text
        .lines()
        .filter(|line| line.starts_with("node "))
        .count();
    assert_eq!(signs, 4, "{text}");
    assert!(
        text.contains("B: g") && text.contains("- idle sibling"),
        "{text}"
    );
}

#[test]
fn draws_shared_caches_and_interrupts() {
    let (machine, around) = recorded("server");
    let plan = "[machine]\nhousekeeping = \"0-1,4-5\"\n[[domain]]\nname = \"press\"\nkind = \"task\"\ncpus = \"2-3\"\npolicy = { fifo = 1 }\ninterrupts = [{ action = \"eno1-rx-3\" }]\n[[domain]]\nname = \"vision\"\nkind = \"vm\"\nvcpus = { cpus = \"6-7\", policy = { fifo = 1 } }\nmemory = { size = \"1GiB\", hugepage = \"2MiB\" }\ndevices = [\"0000:81:00.0\"]\n[boot]\nreboot = \"plan\"\n";
    let resolved = resolve_in(&machine, plan, &around);
    let text = terminal(&resolved, 80);
    assert!(text.contains("shared: housekeeping, press"), "{text}");
    assert!(
        text.contains("press: 1 interrupt on CPUs 2-3: eno1-rx-3"),
        "{text}"
    );
    assert!(text.contains("[restart-needed]"), "{text}");
    assert!(wide(&text).is_empty(), "{text}");
    assert!(!resolved.is_refused(), "{text}");
}

#[test]
fn escapes_texts_of_a_plan() {
    let evil = "<script>alert(1)</script>\\u001b[31m\\\"'&\\u202e";
    let plan = format!(
        "[machine]\nfingerprint = \"{evil}\"\n[[domain]]\nname = \"a\"\nkind = \"task\"\ncpus = \"2-3\"\n[[domain]]\nname = \"b\"\nkind = \"task\"\ncpus = \"3\"\n[[waive]]\nrule = \"one-owner\"\nreason = \"{evil}\"\n"
    );
    let mut resolved = resolve(&quad(), &plan);
    // A resolved plan may be read from a file.
    let name = "<script>\u{1b}[31m\"\u{202e}".to_owned();
    let choice = KnobChoice {
        action: KnobAction::Apply,
        value: Some(name.clone()),
    };
    resolved.host.insert(name, choice);
    let page = plan_page(&resolved, "<b>\"'&");
    assert!(
        !page.contains("<script") && !page.contains('\u{1b}') && !page.contains('\u{202e}'),
        "{page}"
    );
    assert!(page.contains("&lt;script&gt;alert(1)"), "{page}");
    assert!(page.contains("<title>&lt;b&gt;&quot;&#39;&amp;</title>"));
    assert!(!page.contains("http"), "it needs no network");
    let text = terminal(&resolved, 1);
    assert!(
        !text.contains('\u{1b}') && !text.contains('\u{202e}'),
        "{text}"
    );
    let words: Vec<&str> = text.split_whitespace().collect();
    assert!(words.join(" ").contains("waived: <script>"), "{text}");
}

#[test]
fn draws_an_empty_plan_on_an_empty_machine() {
    let text = terminal(&resolve(&quad(), ""), 80);
    assert!(text.contains("####"), "{text}");
    let none = machine(&[], &[], &[]);
    let _ = terminal(&resolve(&none, ""), 80);
    let _ = plan_page(&resolve(&none, ""), "");
}
