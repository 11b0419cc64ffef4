// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The check of a machine: whether it is fit for real-time work, then its findings by severity.

use rampart_model::{Check, CheckFinding, CheckState, Finding, plural};

use crate::element::{Element, ListItem, Text};
use crate::plan_picture::item;

/// Returns a check: machine and CPUs, the answer, errors and warnings, what could not be read.
/// `verbose` adds all other knobs, and cost, choices and locations of each finding.
#[must_use]
pub fn check(check: &Check, verbose: bool) -> Vec<Element> {
    let mut elements = vec![
        Element::heading(1, machine(check)),
        Element::paragraph(format!(
            "Real-time {} ({}), housekeeping {}.",
            check.real_time.named(),
            check.chosen_by,
            check.housekeeping.named()
        )),
        Element::paragraph(answer(check)),
    ];
    // A short list needs no order.
    let deviations = (check.counts.errors + check.counts.warnings) as usize;
    let first = match deviations > check.first.len() {
        true => check.first.as_slice(),
        false => &[],
    };
    if !first.is_empty() {
        elements.push(Element::heading(2, "Fix first"));
        elements.push(Element::List {
            items: first
                .iter()
                .filter_map(|rule| check.findings.iter().find(|finding| finding.rule == *rule))
                .map(|finding| judged(finding, verbose))
                .collect(),
        });
    }
    elements.extend(by_plan(check, deviations));
    for (state, title, other) in [
        (CheckState::Error, "Errors", "Other errors"),
        (CheckState::Warning, "Warnings", "Other warnings"),
    ] {
        let title = if first.is_empty() { title } else { other };
        section(&mut elements, check, state, title, first, |finding| {
            judged(finding, verbose)
        });
    }
    if verbose {
        for (state, title) in [
            (CheckState::Ok, "As expected"),
            (CheckState::Informational, "Informational"),
        ] {
            section(&mut elements, check, state, title, &[], |finding| {
                let text = format!("{} ({})", finding.found, finding.title);
                item(&finding.rule, text)
            });
        }
        let (state, title) = (CheckState::NotApplicable, "Not applicable");
        section(&mut elements, check, state, title, &[], |finding| {
            item(&finding.rule, &finding.reason)
        });
    }
    if !check.not_read.is_empty() {
        elements.push(Element::heading(2, "Not read"));
        let items = check.not_read.iter().map(|not_read| ListItem {
            items: vec![
                item("fix", &not_read.fix),
                item("knobs", not_read.rules.join(", ")),
            ],
            ..item("", &not_read.why)
        });
        elements.push(Element::List {
            items: items.collect(),
        });
    }
    elements.push(Element::heading(2, "Detached threads"));
    elements.push(Element::List {
        items: detached(&check.detached),
    });
    if !verbose {
        elements.push(Element::heading(2, "More"));
        let items = [
            ("all knobs", "rampart check -v"),
            ("one knob", "rampart knobs NAME"),
        ];
        elements.push(Element::List {
            items: items.map(|(label, text)| item(label, text)).into(),
        });
    }
    elements
}

/// Returns whether threads can be detached, or why not. A machine is no worse without them.
fn detached(problems: &[Finding]) -> Vec<ListItem> {
    if problems.is_empty() {
        return vec![item("possible", "rampart detach take CPU -- PROGRAM")];
    }
    let reason = |finding: &Finding| {
        let what = &finding.what;
        let values = finding.found.as_ref().zip(finding.expected.as_ref());
        let text = match values {
            Some((found, expected)) => format!("{what}; found {found}, expected {expected}"),
            None => what.clone(),
        };
        let label = if finding.undecided {
            "unknown"
        } else {
            "not possible"
        };
        ListItem {
            items: finding.fix.iter().flat_map(|fix| fix_items(fix)).collect(),
            ..item(label, text)
        }
    };
    problems.iter().map(reason).collect()
}

fn machine(check: &Check) -> String {
    let machine = &check.machine;
    let mut parts = vec![
        machine.host_name.clone(),
        machine.processor.clone(),
        machine.online.named().to_string(),
        format!("Linux {}", machine.kernel_release),
    ];
    parts.extend(machine.distribution.clone());
    let hypervisor = machine.hypervisor.iter();
    parts.extend(hypervisor.map(|name| format!("a guest of {name}")));
    parts.retain(|part| !part.is_empty());
    parts.join(" · ")
}

fn answer(check: &Check) -> String {
    let counts = check.counts;
    let answer = if check.is_unfit() {
        "Not fit for real-time work"
    } else {
        "No errors"
    };
    format!(
        "{answer}: {}, {}, {} ok, {} informational, {} not read, {} not applicable.",
        plural(counts.errors, "error"),
        plural(counts.warnings, "warning"),
        counts.ok,
        counts.informational,
        counts.not_read,
        counts.not_applicable
    )
}

/// Returns how many of the deviations a plan sets, with the commands.
fn by_plan(check: &Check, deviations: usize) -> Option<Element> {
    let count = check
        .findings
        .iter()
        .filter(|finding| finding.by_plan)
        .count();
    (count > 0).then(|| {
        let text = format!(
            "A plan sets {count} of these {deviations}: `rampart plan propose --out plan.toml`, then `rampart apply plan.toml`."
        );
        Element::paragraph(Text::prose(&text))
    })
}

/// Adds the findings of one state by group, except for those of the `shown` rules.
fn section(
    elements: &mut Vec<Element>,
    check: &Check,
    state: CheckState,
    title: &str,
    shown: &[String],
    item: impl Fn(&CheckFinding) -> ListItem,
) {
    let findings: Vec<&CheckFinding> = check
        .findings
        .iter()
        .filter(|finding| finding.state == state && !shown.contains(&finding.rule))
        .collect();
    if findings.is_empty() {
        return;
    }
    elements.push(Element::heading(2, title));
    for group in findings.chunk_by(|one, other| one.group == other.group) {
        elements.push(Element::heading(3, group[0].group.title()));
        elements.push(Element::List {
            items: group.iter().map(|finding| item(finding)).collect(),
        });
    }
}

/// Returns an error or a warning with its reason, its fix and its source.
fn judged(finding: &CheckFinding, verbose: bool) -> ListItem {
    let mut items = vec![item("why", Text::prose(&finding.reason))];
    items.extend(finding.fix.iter().flat_map(|fix| fix_items(fix)));
    let disruptive = finding.disruptive.iter().map(|how| format!("; {how}"));
    let effect = finding.effect.words().to_owned() + &disruptive.collect::<String>();
    items.push(item("effect", effect));
    items.push(item("source", &finding.source));
    if verbose {
        items.push(item("cost", Text::prose(&finding.cost)));
        items.extend(finding.choices.iter().map(|choice| {
            let text = format!(
                "{} expects {}: {} ({})",
                choice.name, choice.expected, choice.why, choice.who
            );
            item("choice", Text::prose(&text))
        }));
        let wrong = finding.locations.iter();
        let wrong = wrong.filter(|location| location.satisfied == Some(false));
        items.extend(wrong.map(|location| item(&location.location, &location.found)));
    }
    ListItem {
        items,
        ..item(
            &finding.rule,
            format!("{}; expected {}", finding.found, finding.expected),
        )
    }
}

/// Returns a fix, one alternative in each item.
pub(crate) fn fix_items(fix: &str) -> impl Iterator<Item = ListItem> {
    let label = |index| if index == 0 { "fix" } else { "or" };
    fix.lines()
        .enumerate()
        .map(move |(index, line)| item(label(index), Text::prose(line)))
}

#[cfg(test)]
mod tests {
    use rampart_host::{MachineRoot, read_detach_driver, read_knob_values, read_machine};
    use rampart_model::{CpuSet, DetachDriver};
    use rampart_rules::Subject;

    use crate::{TerminalOptions, terminal};

    /// Returns the text of the check of a recorded machine with these real-time CPUs.
    fn text(name: &str, real_time: &str, verbose: bool) -> String {
        let root = MachineRoot::at(rampart_recorded::directory(name));
        let real_time: CpuSet = real_time.parse().expect("CPUs");
        let machine = read_machine(&root);
        let readings = read_knob_values(&root, &real_time);
        let subject = Subject {
            machine: &machine,
            readings: &readings,
        };
        let isolation = subject.isolation(real_time);
        let driver = read_detach_driver(&root);
        let check = rampart_rules::check(subject, &isolation, "named with --cpus", driver, "test");
        let text = terminal(&super::check(&check, verbose), TerminalOptions::default());
        for line in text.lines() {
            let words = line.split_whitespace().count();
            assert!(line.chars().count() <= 80 || words <= 2, "{name}: {line}");
        }
        text
    }

    #[test]
    fn states_whether_threads_can_be_detached_with_the_fix() {
        let root = MachineRoot::at(rampart_recorded::directory("server"));
        let machine = read_machine(&root);
        for (driver, words) in [
            (Some(DetachDriver::Loaded), "rampart detach take CPU"),
            (Some(DetachDriver::Installed), "modprobe detach"),
            (Some(DetachDriver::NotInstalled), "dkms install rampart/"),
            (
                Some(DetachDriver::NoModules),
                "boot the distribution's kernel",
            ),
            (None, "unknown: "),
        ] {
            let problems = rampart_rules::detach_problems(&machine, driver);
            let list = [crate::Element::List {
                items: super::detached(&problems),
            }];
            let text = terminal(&list, TerminalOptions::default());
            assert!(text.contains(words), "{text}");
        }
    }

    #[test]
    fn renders_a_virtual_machine() {
        insta::assert_snapshot!(text("virtual-machine", "1", false));
    }

    #[test]
    fn renders_a_simulated_machine() {
        insta::assert_snapshot!(text("simulated", "1-3", true));
    }

    #[test]
    fn renders_a_laptop() {
        insta::assert_snapshot!(text("laptop", "6-7", false));
    }

    #[test]
    fn renders_a_server() {
        insta::assert_snapshot!(text("server", "2-3,6-7", true));
    }

    #[test]
    fn renders_a_board() {
        insta::assert_snapshot!(text("board", "4-5", true));
    }
}
