// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Instructions of detaching, a proxied system call, a page fault and returning, counted by a plugin of QEMU
//! (`benchmarks/marked_instructions.c`) between the marks of the example `costs`.

use std::ffi::OsString;
use std::fs;

use rampart_tests::programs::{beside_others, qemu_plugin};

use super::CPU;
use super::machine::Machine;

/// The largest counts of the taken CPU and of the others, and which samples have the attached counterpart. Counts change
/// with the kernel, hence the margin.
const MEASURED: [(&str, u64, Option<u64>, [u64; 2]); 4] = [
    ("system call", 2, Some(0), [400, 50_000]),
    ("page fault", 3, Some(1), [400, 50_000]),
    ("detaching", 4, None, [400, 30_000]),
    ("returning", 5, None, [400, 30_000]),
];

/// Instructions of each CPU at a mark.
struct Mark {
    number: u64,
    instructions: [u64; 4],
}

fn read_marks(bytes: &[u8]) -> Vec<Mark> {
    let words: Vec<u64> = bytes
        .as_chunks::<8>()
        .0
        .iter()
        .map(|word| u64::from_ne_bytes(*word))
        .collect();
    let records = words.as_chunks::<5>().0.iter();
    records
        .map(|&[number, a, b, c, d]| Mark {
            number,
            instructions: [a, b, c, d],
        })
        .collect()
}

/// Returns the medians of the taken CPU and of all others together, from all samples with these marks.
fn medians(marks: &[Mark], measured: u64) -> [u64; 2] {
    let mut samples: Vec<[u64; 2]> = Vec::new();
    for pair in marks.windows(2) {
        if [pair[0].number, pair[1].number] == [2 * measured, 2 * measured + 1] {
            let of = |cpu: usize| pair[1].instructions[cpu] - pair[0].instructions[cpu];
            let others = [0, 1, 2, 3].into_iter().filter(|&cpu| cpu != CPU).map(of);
            samples.push([of(CPU), others.sum()]);
        }
    }
    assert_eq!(samples.len(), 200, "samples of {measured}");
    [0, 1].map(|side| {
        let mut sorted: Vec<u64> = samples.iter().map(|sample| sample[side]).collect();
        sorted.sort_unstable();
        sorted[sorted.len() / 2]
    })
}

#[test]
fn detaching_costs_a_bounded_number_of_instructions() {
    let _machine = beside_others();
    let Some(plugin) = qemu_plugin("marked_instructions") else {
        return;
    };
    let location = tempfile::tempdir().expect("a directory");
    let file = location.path().join("marks");
    let mut plugin = OsString::from(plugin);
    plugin.push(format!(",out={}", file.display()));
    let output = Machine::boot_counted("/rust/costs 2\n", &plugin).end();
    assert!(output.contains("counted: 202 system calls, 20"), "{output}");
    assert!(
        output.contains("case the_kernel_log_has_no_error passed"),
        "{output}"
    );

    let marks = read_marks(&fs::read(&file).expect("marks"));
    let mut table = "| | attached | detached: taken CPU | detached: other CPUs | ratio |\n\
        |---|--:|--:|--:|--:|\n"
        .to_owned();
    let mut within = true;
    for (name, detached, attached, most) in MEASURED {
        let [taken, others] = medians(&marks, detached);
        // The attached thread may be on any CPU; the taken one is idle in the stub.
        let attached = attached.map(|measured| medians(&marks, measured)[1]);
        let ratio = attached.map(|one| (taken + others) as f64 / one as f64);
        let [attached, ratio] = [
            attached.map(|one| one.to_string()),
            ratio.map(|one| format!("{one:.0}")),
        ]
        .map(|text| text.unwrap_or_else(|| "–".to_owned()));
        table.push_str(&format!(
            "| {name} | {attached} | {taken} | {others} | {ratio} |\n"
        ));
        within &= taken > 0 && taken < most[0] && others > 0 && others < most[1];
    }
    print_table(&table);
    assert!(within, "{table}");
}

#[expect(clippy::print_stdout, reason = "a result for people")]
fn print_table(table: &str) {
    println!("{table}");
}
