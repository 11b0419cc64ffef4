// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a network with a cell costs beside a veth pair: `make bench-hypervisor` prints the tables. The driver of this
//! test is `crates/domains/cells/examples/network_agent/costs.rs`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use rampart_tests::hypervisor::{
    BEGIN, END, assert_nothing_failed, kernel_errors, run_with_options,
};

const RUN: &str = "
grep -q ^rampart_net /proc/modules || insmod modules/$(uname -r)/rampart-net.ko || exit 9
./network_agent compare /boot/vmlinuz-$(uname -r) rampart-meter modules/$(uname -r)/rampart-net.ko . ||
    echo 'FAILED  network_agent'
rmmod rampart-net
";

/// Samples of one kind of traffic: nanoseconds for a unit by a veth pair and by a network with a cell.
type Samples = BTreeMap<String, [Vec<f64>; 2]>;

/// Figures by kind of traffic, in the order of their lines, and the mean exits of each end for a unit.
fn figures(text: &str) -> (Vec<String>, Samples, BTreeMap<String, Vec<f64>>) {
    let (mut order, mut costs, mut exits) = (Vec::new(), Samples::new(), BTreeMap::new());
    for line in text.lines() {
        let words: Vec<&str> = line.split(';').collect();
        match words[..] {
            ["figure cost", what, to, value] => {
                if !costs.contains_key(what) {
                    order.push(what.to_owned());
                }
                let of = costs.entry(what.to_owned()).or_default();
                of[usize::from(to == "cell")].push(value.parse().expect("a number"));
            }
            ["figure exits", what, end, exit, value] => {
                let key = format!("{what} | {end} | {exit}");
                let of: &mut Vec<f64> = exits.entry(key).or_default();
                of.push(value.parse().expect("a number"));
            }
            _ => {}
        }
    }
    (order, costs, exits)
}

/// Returns the least, the median and the greatest.
fn spread(values: &[f64]) -> [f64; 3] {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted[..] {
        [least, .., greatest] => [least, sorted[sorted.len() / 2], greatest],
        _ => panic!("{} samples", values.len()),
    }
}

/// Compares in one machine. `unit` is the number of nanoseconds of the unit in which costs are printed; `None` prints ratios alone.
fn compared(options: &[&str], unit: Option<f64>) -> String {
    let script = [BEGIN, RUN, END].concat();
    let options = [&["--real-time-cpus", "none"], options].concat();
    let text = run_with_options(&script, Duration::from_secs(3000), &options);
    assert_nothing_failed(&text);
    assert!(
        text.contains("ok  compared") && text.contains("finished"),
        "{text}"
    );
    let errors = kernel_errors(&text, &["log "]);
    assert!(errors.is_empty(), "{errors:#?}\n{text}");
    let (order, costs, exits) = figures(&text);
    let mut table = String::new();
    for what in order {
        let [veth, cell] = &costs[&what];
        let ratios: Vec<f64> = veth
            .iter()
            .zip(cell)
            .map(|(veth, cell)| cell / veth)
            .collect();
        let count = |values: &[f64]| match (unit, values) {
            (Some(unit), [_, ..]) => format!("{:.0}", spread(values)[1] / unit),
            _ => "–".to_owned(),
        };
        let ratio = match ratios[..] {
            [] => "–".to_owned(),
            _ => {
                let [least, median, greatest] = spread(&ratios);
                format!("{median:.2} ({least:.2} to {greatest:.2})")
            }
        };
        writeln!(
            table,
            "| {what} | {} | {} | {ratio} | {} |",
            count(veth),
            count(cell),
            cell.len()
        )
        .expect("a string");
    }
    table.push('\n');
    for (key, values) in exits {
        // In repetitions without a line there was none.
        let mean = values.iter().sum::<f64>() / 9.0;
        writeln!(table, "| {key} | {mean:.2} |").expect("a string");
    }
    table
}

/// Run by `make bench-hypervisor`.
#[test]
#[ignore = "a benchmark of some minutes"]
#[expect(clippy::print_stdout, reason = "a result for people")]
fn a_network_with_a_cell_beside_a_veth_pair() {
    println!(
        "instructions of all CPUs:\n{}",
        compared(&["--count-instructions"], Some(16.0))
    );
    println!("times, as ratios:\n{}", compared(&[], None));
}
