// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Parsing of plans, and the errors of invalid plans.

use proptest::prelude::*;
use rampart_model::{DomainKind, Nanos, SchedulingPolicy};
use rampart_plan::parse;

/// A plan with every field.
const FULL: &str = r#"
schema = 1
[machine]
housekeeping = "0"
smt = "same-owner"
policy = "warn"

[[domain]]
name     = "press-control"
kind     = "task"
cpus     = "1"
run      = ["/opt/press/control", "--cycle", "1ms"]
policy   = { fifo = 80 }
deadline = "100us"
restart  = "on-failure"
service  = "0"
threads  = [{ match = "log*", policy = "other" }, { match = "io", cpus = "1", policy = { deadline = { runtime = "100us", deadline = "1ms", period = "1ms" } } }]
interrupts = [{ action = "eth1-*" }, { chip = "GICv3", name = "edge" }]
cache = { ways = 4, exclusive = true, bandwidth-percent = 50 }

[[domain]]
name = "logger"
kind = "container"
cpus = { count = 1, node = 0, whole-cores = true, not-l3-of = "press-control" }
container = { engine = "podman", image = "logger:1" }

[[domain]]
name   = "vision"
kind   = "vm"
vcpus  = { count = 2, policy = { fifo = 1 }, real-time = "1" }
memory = { size = "1GiB", hugepage = "2MiB", node = 0 }
kernel = "/boot/vmlinuz-6.1.0-56-rt-amd64"
initramfs = "/boot/initrd"
disk = "/var/lib/vision.img"
emulator = "0"
cpu-pm = true
hint-dedicated = true
devices = ["0000:03:00.0"]

[host]
timer-migration = { action = "apply", value = "1" }
real-time-throttling = "skip"
governor = "expect"
default = "skip"

[boot]
arguments = ["skew_tick=1"]
reboot = "plan"

[[waive]]
rule = "one-owner"
reason = "they take turns"
domain = "vision"
"#;

#[test]
fn parses_every_field() {
    let plan = parse(FULL, "plan.toml").unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(plan.domains.len(), 3);
    let control = plan.domain("press-control").expect("control");
    assert_eq!(control.kind, DomainKind::Task);
    assert_eq!(control.deadline, Some(Nanos::from_micros(100)));
    assert_eq!(
        control.policy.map(|policy| policy.0),
        Some(SchedulingPolicy::Fifo(80))
    );
    let written = rampart_plan::write(&plan);
    assert_eq!(
        parse(&written, "written").expect("written"),
        plan,
        "{written}"
    );
    let locations = rampart_plan::DomainLines::of(FULL);
    assert_eq!(locations.line(Some("press-control")), Some(9));
    assert_eq!(locations.line(Some("nobody")), None);
}

/// Plans with a mistake: the text, line and column of the error, and words of its message.
const MISTAKES: &[(&str, usize, usize, &[&str])] = &[
    (
        "[machine]\nhouskeeping = \"0\"\n",
        2,
        1,
        &["unknown field `houskeeping`", "`housekeeping`"],
    ),
    (
        "[machine]\nhousekeeping = 0\n",
        2,
        16,
        &["expected a string", "housekeeping = \"0-1\""],
    ),
    (
        "[machine]\nhousekeeping = \"3-1\"\n",
        2,
        16,
        &["runs backwards", "`2-3`"],
    ),
    ("[machine]\nsmt = \"on\"\n", 2, 7, &["`idle-sibling`"]),
    (
        "[[domain]]\nname = \"a\"\nkind = \"proces\"\ncpus = \"1\"\n",
        3,
        8,
        &["`task`"],
    ),
    (
        "[[domain]]\nname = \"a\"\nkind = \"task\"\n",
        1,
        1,
        &["has no `cpus`", "count = 1"],
    ),
    (
        "[[domain]]\nname = \"a\"\nkind = \"task\"\ncpus = 1\n",
        4,
        8,
        &["a list of CPUs such as \"1-3\""],
    ),
    (
        "[[domain]]\nname = \"a\"\nkind = \"task\"\ncpus = { cuont = 1 }\n",
        4,
        10,
        &["unknown field `cuont`"],
    ),
    (
        "[[domain]]\nname = \"a\"\nkind = \"task\"\ncpus = { count = 0 }\n",
        4,
        8,
        &["requests 0 CPUs"],
    ),
    (
        "[[domain]]\nname = \"a\"\nkind = \"task\"\ncpus = \"\"\n",
        4,
        8,
        &["names no CPU"],
    ),
    (
        "[[domain]]\nname = \"a\"\nkind = \"task\"\ncpus = { count = 1, same-l3-as = \"b\" }\n",
        4,
        8,
        &["`b`, which is not an earlier domain"],
    ),
    (
        "[[domain]]\nname = \"a b\"\nkind = \"task\"\ncpus = \"1\"\n",
        2,
        8,
        &["not a valid name of a domain"],
    ),
    (
        "[[domain]]\nname = \"a\"\nkind = \"task\"\ncpus = \"1\"\npolicy = { fifo = 100 }\n",
        5,
        10,
        &["between 1 and 99"],
    ),
    (
        "[[domain]]\nname = \"a\"\nkind = \"task\"\ncpus = \"1\"\npolicy = { fifo = 1, rr = 1 }\n",
        5,
        10,
        &["exactly one of"],
    ),
    (
        "[[domain]]\nname = \"a\"\nkind = \"task\"\ncpus = \"1\"\ndeadline = \"100\"\n",
        5,
        12,
        &["has no unit", "100us"],
    ),
    (
        "[[domain]]\nname = \"a\"\nkind = \"task\"\ncpus = \"1\"\nmemory = { size = \"1GiB\" }\n",
        5,
        10,
        &["belongs to guests"],
    ),
    (
        "[[domain]]\nname = \"g\"\nkind = \"vm\"\nvcpus = \"1\"\n",
        1,
        1,
        &["has no `memory`"],
    ),
    (
        "[[domain]]\nname = \"g\"\nkind = \"vm\"\ncpus = \"1\"\n",
        4,
        8,
        &["in `vcpus`"],
    ),
    (
        "[[domain]]\nname = \"g\"\nkind = \"vm\"\nvcpus = { node = 0 }\n",
        4,
        9,
        &["neither `count` nor `cpus`"],
    ),
    (
        "[[domain]]\nname = \"g\"\nkind = \"vm\"\nvcpus = \"1\"\nmemory = { size = \"1 gig\" }\n",
        5,
        19,
        &["is not a size"],
    ),
    (
        "[[domain]]\nname = \"h\"\nkind = \"host\"\ncpus = { count = 1 }\n",
        4,
        8,
        &["housekeeping CPUs"],
    ),
    (
        "[[domain]]\nname = \"d\"\nkind = \"detached\"\ncpus = \"1\"\npolicy = { fifo = 1 }\n",
        5,
        10,
        &["Linux schedules no thread"],
    ),
    (
        "[[domain]]\nname = \"t\"\nkind = \"task\"\ncpus = \"1\"\nowner = 1000\n",
        5,
        9,
        &["`owner = 1000`", "kind = \"detached\""],
    ),
    (
        "[[domain]]\nname = \"d\"\nkind = \"detached\"\ncpus = \"1\"\nowner = 4294967295\n",
        5,
        9,
        &["`id -u NAME`"],
    ),
    (
        "[host]\ngovernor = \"yes\"\n",
        2,
        12,
        &["`apply`", "`skip`", "`expect`"],
    ),
    (
        "[host]\ngovernor = \"skip\"\ntimer-migratoin = \"apply\"\n",
        3,
        19,
        &["no knob `timer-migratoin`", "timer-migration"],
    ),
    (
        "[host]\nksoftirqd-priority = { action = \"apply\", value = \"100\" }\n",
        2,
        22,
        &["cannot be `100`", "tuned or nto or kernel or a priority"],
    ),
    (
        "[host]\ndefault = { action = \"skip\", value = \"1\" }\n",
        2,
        11,
        &["has no value", "default = \"skip\""],
    ),
    (
        "[boot]\narguments = [\"a b\"]\n",
        2,
        13,
        &["not a single kernel argument"],
    ),
    (
        "[[waive]]\nrule = \"no-such\"\nreason = \"x\"\n",
        2,
        8,
        &["there is no rule `no-such`", "one-owner"],
    ),
    (
        "[[waive]]\nrule = \"one-owners\"\nreason = \"x\"\n",
        2,
        8,
        &[
            "there is no rule `one-owners`",
            "write rule = \"one-owner\"",
        ],
    ),
    (
        "[machine]\nhousekeping = \"0\"\n",
        2,
        1,
        &["unknown field `housekeping`", "write `housekeeping`"],
    ),
    (
        "[host]\nthp = \"skip\"\ntransparent-huge-pages = \"apply\"\n",
        3,
        26,
        &["`thp` and `transparent-huge-pages` are the same knob"],
    ),
    (
        "[[waive]]\nrule = \"one-owner\"\n",
        1,
        1,
        &["missing field `reason`"],
    ),
    (
        "[[waive]]\nrule = \"one-owner\"\nreason = \" \"\n",
        3,
        10,
        &["has no reason"],
    ),
    (
        "[[waive]]\nrule = \"cpu-exists\"\nreason = \"x\"\n",
        2,
        8,
        &["cannot be waived"],
    ),
    (
        "[[waive]]\nrule = \"one-owner\"\nreason = \"x\"\ndomain = \"z\"\n",
        4,
        10,
        &["`z`, which is not a domain"],
    ),
    ("schema = 2\n", 1, 10, &["version 2"]),
    ("[machine\n", 1, 9, &[]),
];

#[test]
fn reports_mistakes_with_their_location() {
    for (text, line, column, words) in MISTAKES {
        let error = parse(text, "plan.toml").expect_err(text);
        let message = error.to_string();
        assert_eq!((error.line, error.column), (*line, *column), "{message}");
        assert!(
            message.starts_with(&format!("plan.toml:{line}:{column}: ")),
            "{message}"
        );
        let offending = text.lines().nth(line - 1).expect("the line");
        assert!(
            message.contains(&format!("{line} | {offending}")),
            "{message}"
        );
        for word in *words {
            assert!(message.contains(word), "no {word:?} in: {message}");
        }
    }
}

#[test]
fn knobs_have_the_names_of_the_kernel_too() {
    let text = "[host]\nthp = \"skip\"\n\"kernel.sched_rt_runtime_us\" = { action = \"apply\", value = \"-1\" }\n\
                [[waive]]\nrule = \"sibling_threads\"\nreason = \"x\"\n";
    let plan = parse(text, "plan.toml").expect("a plan");
    let names: Vec<&str> = plan.host.keys().map(String::as_str).collect();
    assert_eq!(names, ["real-time-throttling", "transparent-huge-pages"]);
    assert_eq!(plan.waivers[0].rule, "sibling-threads");
}

#[test]
fn reports_two_domains_with_one_name() {
    let domain = "[[domain]]\nname = \"a\"\nkind = \"task\"\ncpus = \"1\"\n";
    let error = parse(&format!("{domain}{domain}"), "p").expect_err("twice");
    assert_eq!(error.line, 6);
}

/// Returns pieces of plans in any order; more of them are TOML than of random texts.
fn pieces() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "[machine]\n",
        "[[domain]]\n",
        "[host]\n",
        "governor = \"skip\"\n",
        "[boot]\n",
        "[[waive]]\n",
        "name = \"a\"\n",
        "kind = \"task\"\n",
        "kind = \"vm\"\n",
        "cpus = \"1-3\"\n",
        "cpus = { count = 2 }\n",
        "vcpus = { count = 4294967295 }\n",
        "vcpus = \"0-65535\"\n",
        "memory = { size = \"1GiB\" }\n",
        "policy = { rr = 3 }\n",
        "housekeeping = \"0,9\"\n",
        "fingerprint = \"topology-1:é =\"\n",
        "deadline = \"1h\"\n",
        "x = 1\n",
        "smt = \"off\"\n",
        "rule = \"one-owner\"\n",
        "reason = \"é\"\n",
        "emulator = \"1\"\n",
        "= \n",
        "\"",
        "{",
        "[",
        "é",
        "\0",
        "threads = [{ match = \"*\" }]\n",
    ]);
    prop::collection::vec(piece, 0..14).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn parses_or_refuses_any_text(text in ".{0,200}") {
        let _ = parse(&text, "any").map_err(|error| error.to_string());
        let _ = rampart_plan::DomainLines::of(&text);
    }

    #[test]
    fn parses_or_refuses_any_pieces(text in pieces()) {
        if let Ok(plan) = parse(&text, "any") {
            prop_assert_eq!(parse(&rampart_plan::write(&plan), "written"), Ok(plan));
        }
    }
}

#[test]
fn both_ends_of_a_network_agree() {
    let cell = |name: &str, networks: &str| {
        format!(
            "[[domain]]\nname = \"{name}\"\nkind = \"cell\"\ncpus = {{ count = 1 }}\nmemory = {{ size = \"16MiB\" }}\nimage = \"/{name}.bin\"\ncell = {{ network = [{networks}] }}\n"
        )
    };
    let plan = |press: &str, vision: &str| cell("press", press) + &cell("vision", vision);
    let with = |peer: &str| format!("{{ peer = \"{peer}\", size = \"64KiB\" }}");
    let good = plan(
        &format!("{}, {{ peer = \"root\" }}", with("vision")),
        &with("press"),
    );
    let parsed = parse(&good, "plan.toml").expect("both agree");
    let options = parsed.domains[0].cell.as_ref().expect("options");
    assert_eq!(options.network[1].size.0, 256 << 10, "the default");
    for (press, vision, wanted) in [
        (with("vision"), String::new(), "does not have the network"),
        (with("vision"), "{ peer = \"press\" }".to_owned(), "64KiB"),
        (with("far"), String::new(), "no other cell `far`"),
        (with("press"), String::new(), "no other cell `press`"),
        (
            format!("{0}, {0}", with("root")),
            String::new(),
            "two networks",
        ),
        (
            "{ peer = \"root\", size = \"5000B\" }".to_owned(),
            String::new(),
            "size of 5000",
        ),
    ] {
        let text = plan(&press, &vision);
        let error = parse(&text, "plan.toml").expect_err(wanted).to_string();
        assert!(error.contains(wanted), "{wanted}: {error}");
    }
}

#[test]
fn a_cell_names_a_pci_function_by_its_whole_address() {
    let plan = |device: &str| {
        let text = format!(
            "[[domain]]\nname = \"press\"\nkind = \"cell\"\ncpus = {{ count = 1 }}\nmemory = {{ size = \"16MiB\" }}\nimage = \"/press.bin\"\ndevices = [\"{device}\"]\n"
        );
        parse(&text, "plan.toml")
    };
    for device in ["0000:00:04.0", "/pl061@9030000", "pl031@9010000", "rtc"] {
        assert!(plan(device).is_ok(), "{device}");
    }
    for device in ["00:04.0", "0000:00:4.0", "0000:00:04"] {
        let error = plan(device).expect_err(device).to_string();
        assert!(error.contains("\"0000:00:04.0\""), "{error}");
    }
}

#[test]
fn a_standby_needs_a_cell() {
    let cell = "[[domain]]\nname = \"press\"\nkind = \"cell\"\ncpus = \"1\"\nmemory = { size = \"2MiB\" }\nimage = \"/press.bin\"\n";
    let standby = |name: &str, more: &str| {
        format!("[[standby]]\nname = \"{name}\"\nkernel = \"/k\"\ninitramfs = \"/i\"\n{more}")
    };
    let good = [
        cell,
        &standby("spare", ""),
        &standby("other", "memory = \"1GiB\"\narguments = \"panic=1\"\n"),
    ]
    .concat();
    let plan = parse(&good, "plan.toml").unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(plan.standbys[0].memory.0, 256 << 20, "the default");
    assert_eq!(plan.standbys[1].arguments.as_deref(), Some("panic=1"));
    assert_eq!(parse(&rampart_plan::write(&plan), "written"), Ok(plan));
    let long = "a".repeat(33);
    for (text, line, wanted) in [
        (standby("spare", ""), 2, "no cell"),
        ([cell, &standby("press", "")].concat(), 8, "used twice"),
        (
            [cell, &standby("a", ""), &standby("a", "")].concat(),
            12,
            "used twice",
        ),
        ([cell, &standby("root", "")].concat(), 8, "not `root`"),
        ([cell, &standby(&long, "")].concat(), 8, "at most 32"),
        ([cell, &standby("a/b", "")].concat(), 8, "not a valid name"),
        (
            [cell, &standby("a", "memory = \"0B\"\n")].concat(),
            11,
            "the size is 0",
        ),
        (
            [cell, &standby("a", "").replace("\"/i\"", "\"\"")].concat(),
            10,
            "the path is empty",
        ),
        (
            [cell, &standby("a", "cpus = \"1\"\n")].concat(),
            11,
            "unknown field `cpus`",
        ),
    ] {
        let error = parse(&text, "plan.toml").expect_err(wanted).to_string();
        assert!(error.contains(wanted), "{wanted}: {error}");
        assert!(
            error.contains(&format!("plan.toml:{line}:")),
            "{line}: {error}"
        );
    }
}

#[test]
fn only_a_linux_has_a_time_until_its_console() {
    let cell = |initramfs: &str, time: &str| {
        let text = format!(
            "[[domain]]\nname = \"press\"\nkind = \"cell\"\ncpus = \"1\"\nmemory = {{ size = \"2MiB\" }}\nimage = \"/press.bin\"\n{initramfs}cell = {{ starts-within = \"{time}\" }}\n"
        );
        parse(&text, "plan.toml")
    };
    assert!(cell("initramfs = \"/i\"\n", "60s").is_ok());
    for (initramfs, time) in [("", "60s"), ("initramfs = \"/i\"\n", "0s")] {
        let error = cell(initramfs, time).expect_err(time).to_string();
        assert!(error.contains("starts-within"), "{error}");
    }
}
