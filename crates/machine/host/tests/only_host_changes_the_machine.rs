// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks the invariant of this crate in the sources of all others: only `rampart-host` changes the
//! machine. Every other source that changes files is listed with the files that it changes, and
//! names no path of the machine in such a call.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Calls that change files.
const CALLS: [&str; 14] = [
    "fs::write(",
    "fs::copy(",
    "fs::rename(",
    "fs::hard_link(",
    "fs::set_permissions(",
    "fs::create_dir(",
    "fs::create_dir_all(",
    "fs::remove_file(",
    "fs::remove_dir(",
    "fs::remove_dir_all(",
    "File::create(",
    "OpenOptions::new(",
    "symlink(",
    "mount(",
];

/// Calls that change the kernel or a device without a file.
const KERNEL_CALLS: [&str; 8] = [
    "finit_module(",
    "delete_module(",
    "reboot(",
    "ioctl(",
    "SYS_finit_module",
    "SYS_delete_module",
    "SYS_reboot",
    "SYS_ioctl",
];

/// The sources with such a call, and what the call changes.
const ALLOWED_KERNEL_CALLS: [(&str, &str, &str); 5] = [
    (
        "domains/agent/src/server/continued.rs",
        "ioctl(",
        "the random numbers of a simulated machine that continues",
    ),
    (
        "domains/agent/src/server/init.rs",
        "finit_module(",
        "the kernel of the guest whose init it is",
    ),
    (
        "domains/agent/src/server/init.rs",
        "reboot(",
        "the guest whose init it is",
    ),
    (
        "domains/cells/src/device.rs",
        "ioctl(",
        "the device of the driver",
    ),
    (
        "measure/meter/src/program/blocker/module.rs",
        "SYS_ioctl",
        "the device of blocksys",
    ),
];

/// Directories of the machine that only `rampart-host` changes.
const MACHINE: [&str; 6] = ["\"/sys", "\"/proc", "\"/lib", "\"/etc", "\"/boot", "\"/usr"];

/// Prefixes of paths below `crates/`, with the files that the sources there change.
const ALLOWED: [(&str, &str); 16] = [
    ("domains/agent/src/", "files of the guest whose init it is"),
    ("domains/cells/src/device.rs", "the device of the driver"),
    (
        "domains/cells/src/operate/log.rs",
        "a log that the user names",
    ),
    ("domains/domain/src/", "the state directory and exports"),
    ("domains/qemu/src/process.rs", "the directory of a guest"),
    (
        "machine/recorded/src/lib.rs",
        "recorded machines, for tests",
    ),
    ("machine/supervise/src/", "the state directory"),
    ("measure/bench/src/", "results and simulated machines"),
    ("measure/evaluate/src/store.rs", "results"),
    ("measure/load/src/load.rs", "the directory of a load"),
    (
        "measure/meter/src/program/cell/memory.rs",
        "memory shared with a cell",
    ),
    ("measure/meter/src/program/load.rs", "the file of a load"),
    (
        "rampart/src/commands/documents.rs",
        "a directory that the user names",
    ),
    ("rampart/src/commands/evaluate_on.rs", "results"),
    (
        "rampart/src/commands/export/",
        "a directory that the user names",
    ),
    ("show/", "the page, when it is built"),
];

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("a directory").flatten() {
        let path = entry.path();
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if path.is_dir() {
            let skipped = ["tests", "examples", "target", "node_modules", "fixtures"];
            if !skipped.contains(&&*name) {
                sources(&path, found);
            }
        } else if name.ends_with(".rs") && !name.ends_with("tests.rs") {
            found.push(path);
        }
    }
}

/// Returns the calls of these functions in a source, each up to the end of its statement.
fn changing_calls<'a>(
    text: &str,
    calls: impl IntoIterator<Item = &'a &'static str>,
) -> Vec<String> {
    let code = code_of(text);
    let is_whole_name =
        |before: &str| !before.ends_with(|last: char| last.is_alphanumeric() || last == '_');
    calls
        .into_iter()
        .flat_map(|call| code.match_indices(call))
        .filter_map(|(at, _)| code.split_at_checked(at))
        .filter(|(before, _)| is_whole_name(before))
        .map(|(_, call)| call.split(';').next().unwrap_or_default().to_owned())
        .collect()
}

/// Returns a source without comments and the module of its tests.
fn code_of(text: &str) -> String {
    let code = ["mod ", "pub(super) mod "]
        .iter()
        .fold(text, |code, visibility| {
            let tests = format!("#[cfg(test)]\n{visibility}");
            code.split(&tests).next().unwrap_or_default()
        });
    let code: Vec<&str> = code
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .collect();
    code.join("\n")
}

/// Returns the path below `crates/` and the text of each source.
fn all_sources() -> Vec<(String, String)> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let crates = crates.canonicalize().expect("the crates");
    let mut files = Vec::new();
    sources(&crates, &mut files);
    let named = files.into_iter().map(|file| {
        let name = file
            .strip_prefix(&crates)
            .expect("below")
            .display()
            .to_string();
        (name, fs::read_to_string(&file).expect("a source"))
    });
    named.collect()
}

/// Words of a source that moves a thread to other CPUs.
const MOVES: [&str; 5] = [
    "join(\"cgroup.procs\")",
    "join(\"cgroup.threads\")",
    "join(\"tasks\")",
    "set_affinity(",
    "sched_setaffinity(",
];

/// Prefixes of paths below `crates/` with such a word, and why no starved thread can keep what others need there.
const ALLOWED_MOVES: [(&str, &str); 14] = [
    (
        "machine/host/src/placement/",
        "moves others; itself by a child that stays outside",
    ),
    ("machine/host/src/shield/", "moves others"),
    ("machine/host/src/groups.rs", "reads and moves others"),
    ("machine/host/src/real_time.rs", "names the file in a fix"),
    ("machine/host/src/fake/", "a kernel in memory, for tests"),
    ("machine/host/src/kernel.rs", "the call"),
    ("machine/host/src/apply/", "moves others"),
    ("machine/host/src/changes.rs", "moves others"),
    ("machine/host/src/undo.rs", "moves others"),
    ("machine/host/src/isolated_cpus.rs", "only adds CPUs"),
    (
        "machine/host/src/tracing/reader.rs",
        "to the housekeeping CPUs",
    ),
    ("domains/domain/src/meter_placement.rs", "moves others"),
    ("measure/load/src/proc.rs", "moves others"),
    (
        "measure/meter/src/",
        "its own threads, which hold nothing; its caller waits with a limit",
    ),
];

/// Sources that start a program of a guest or measure; what they bind is that program.
const OTHER_PROGRAMS: [&str; 1] = ["domains/agent/src/server/started_program.rs"];

/// A process that moves itself into an isolation may never run again, in the middle of the call and with the kernel's
/// locks held. So nothing places the calling process except for `place_this_process`.
#[test]
fn no_process_moves_itself_behind_an_isolation() {
    let files = all_sources();
    let (mut wrong, mut used) = (Vec::new(), BTreeSet::new());
    for (name, text) in files {
        let itself = ["place_process(std::process::id()", "place_process(own"];
        if !changing_calls(&text, &itself).is_empty() {
            wrong.push(format!("{name}: use place_this_process"));
        }
        let code = code_of(&text).replace("sched_setaffinity(2)", "");
        if !MOVES.iter().any(|word| code.contains(word)) {
            continue;
        }
        match ALLOWED_MOVES
            .iter()
            .position(|(prefix, _)| name.starts_with(prefix))
        {
            Some(index) => _ = used.insert(index),
            None if OTHER_PROGRAMS.contains(&&*name) => (),
            None => wrong.push(format!("{name}: moves threads to other CPUs")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(
        used.len(),
        ALLOWED_MOVES.len(),
        "an exception that nothing uses: {used:?}"
    );
}

#[test]
fn other_crates_change_only_their_own_files() {
    let files = all_sources();
    assert!(files.len() > 200, "{} sources", files.len());
    let mut wrong = Vec::new();
    let mut kernel_calls = BTreeSet::new();
    for (name, text) in files {
        if name.starts_with("machine/host/") {
            continue;
        }
        let is_allowed = ALLOWED.iter().any(|(prefix, _)| name.starts_with(prefix));
        let is_in_guest = name.starts_with("domains/agent/");
        for call in changing_calls(&text, &KERNEL_CALLS) {
            let named = |(path, function, _): &(&str, &str, &str)| {
                name == *path && call.starts_with(function)
            };
            match ALLOWED_KERNEL_CALLS.iter().position(named) {
                Some(index) => _ = kernel_calls.insert(index),
                None => wrong.push(format!("{name}: {call}")),
            }
        }
        for call in changing_calls(&text, &CALLS) {
            let changes_machine = MACHINE.iter().any(|path| call.contains(path));
            if !is_allowed || (changes_machine && !is_in_guest) {
                wrong.push(format!(
                    "{name}: {}",
                    call.lines().next().unwrap_or_default()
                ));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "only rampart-host changes the machine; list what these change in ALLOWED, or move them:\n{}",
        wrong.join("\n")
    );
    let all = ALLOWED_KERNEL_CALLS.len();
    assert_eq!(kernel_calls.len(), all, "an exception that nothing uses");
}
