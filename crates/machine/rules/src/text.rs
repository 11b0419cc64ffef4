// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Formats a check for the terminal: problems first, 80 columns, no meaning in colour alone.

use rampart_model::{Check, CheckFinding, CheckState, KnobGroup, clean, plural};

/// Maximum width of a line; a longer word stays whole.
const WIDTH: usize = 80;

/// Options of the text.
#[derive(Debug, Clone, Copy, Default)]
pub struct TextOptions {
    /// Whether to show all knobs, and each location.
    pub verbose: bool,
    /// Whether headings are bold.
    pub colour: bool,
}

/// Renders a check as text.
#[must_use]
pub fn check_text(check: &Check, options: TextOptions) -> String {
    let mut text = head(check);
    for (state, title) in [
        (CheckState::Error, "PROBLEMS"),
        (CheckState::Warning, "ADVICE"),
    ] {
        section(&mut text, check, state, title, options, |finding| {
            full(finding, options.verbose)
        });
    }
    if options.verbose {
        for (state, title) in [
            (CheckState::Ok, "OK"),
            (CheckState::Informational, "TOLD, NOT JUDGED"),
        ] {
            section(&mut text, check, state, title, options, |finding| {
                let line = format!("{}: {} ({})", finding.rule, finding.found, finding.title);
                wrapped("    ", "      ", &line)
            });
        }
        section(
            &mut text,
            check,
            CheckState::NotApplicable,
            "NOT OF THIS MACHINE",
            options,
            |finding| {
                wrapped(
                    "    ",
                    "      ",
                    &format!("{}: {}", finding.rule, finding.reason),
                )
            },
        );
    }
    if !check.not_read.is_empty() {
        heading(&mut text, "NOT READ", options);
        for not_read in &check.not_read {
            text.push_str(&wrapped("  ", "    ", &not_read.why));
            text.push_str(&wrapped("    fix  ", "          ", &not_read.fix));
            let knobs = not_read.rules.join(", ");
            text.push_str(&wrapped("    for   ", "          ", &knobs));
        }
    }
    text.push('\n');
    text.push_str(&wrapped("", "", &summary(check)));
    if !options.verbose {
        text.push_str("More: rampart check -v, rampart knobs NAME\n");
    }
    text
}

fn head(check: &Check) -> String {
    let machine = &check.machine;
    let mut parts = vec![machine.host_name.clone()];
    if !machine.processor.is_empty() {
        parts.push(machine.processor.clone());
    }
    parts.push(machine.online.named().to_string());
    parts.push(format!("Linux {}", machine.kernel_release));
    parts.extend(machine.distribution.clone());
    parts.extend(
        machine
            .hypervisor
            .as_ref()
            .map(|name| format!("a guest of {name}")),
    );
    parts.retain(|part| !part.is_empty());
    let cpus = format!(
        "Real-time {} ({}), housekeeping {}.",
        check.real_time.named(),
        check.chosen_by,
        check.housekeeping.named()
    );
    wrapped("", "", &parts.join(" · ")) + &wrapped("", "", &cpus)
}

/// Formats the counts and the conclusion.
fn summary(check: &Check) -> String {
    let counts = check.counts;
    let verdict = if check.is_unfit() {
        "Not fit for real-time work"
    } else {
        "No errors"
    };
    format!(
        "{verdict}: {}, {}, {} ok, {} informational, {} not read, {} not applicable.",
        plural(counts.errors, "error"),
        plural(counts.warnings, "warning"),
        counts.ok,
        counts.informational,
        counts.not_read,
        counts.not_applicable
    )
}

fn heading(text: &mut String, title: &str, options: TextOptions) {
    text.push('\n');
    if options.colour {
        text.push_str(&format!("\u{1b}[1m{title}\u{1b}[0m\n"));
    } else {
        text.push_str(&format!("{title}\n"));
    }
}

/// Formats the findings of one state, by group.
fn section(
    text: &mut String,
    check: &Check,
    state: CheckState,
    title: &str,
    options: TextOptions,
    line: impl Fn(&CheckFinding) -> String,
) {
    let mut group: Option<KnobGroup> = None;
    for finding in check.findings.iter().filter(|one| one.state == state) {
        if group.is_none() {
            heading(text, title, options);
        }
        if group != Some(finding.group) {
            text.push_str(&format!("  {}\n", finding.group.title()));
            group = Some(finding.group);
        }
        text.push_str(&line(finding));
    }
}

fn full(finding: &CheckFinding, verbose: bool) -> String {
    let first = format!(
        "{}: {}; should be {}",
        finding.rule, finding.found, finding.expected
    );
    let label = |name: &str| format!("      {name}");
    let mut text = wrapped("    ", "      ", &first);
    text += &wrapped(&label("why   "), "            ", &finding.reason);
    let mut effect = finding.effect.words().to_owned();
    if let Some(disruptive) = &finding.disruptive {
        effect += &format!("; {disruptive}");
    }
    let fix = match &finding.fix {
        Some(fix) => format!("{fix} ({effect})"),
        None => effect,
    };
    text += &wrapped(&label("fix  "), "            ", &fix);
    text += &wrapped(&label("from  "), "            ", &finding.source);
    if verbose {
        text += &wrapped(&label("cost  "), "            ", &finding.cost);
        for choice in &finding.choices {
            let words = format!(
                "{} wants {}: {} ({})",
                choice.name, choice.expected, choice.why, choice.who
            );
            text += &wrapped(&label("or    "), "            ", &words);
        }
        for location in &finding.locations {
            if location.satisfied == Some(false) {
                let words = format!("{} is {}", location.location, location.found);
                text += &wrapped("            ", "              ", &words);
            }
        }
    }
    text
}

/// Wraps a text to lines of at most [`WIDTH`] columns; a longer word gets its own line. Cleans the
/// text, since names of threads and programs are external.
pub(crate) fn wrapped(first: &str, rest: &str, text: &str) -> String {
    rampart_model::wrapped(first, rest, &clean(text), WIDTH)
        .iter()
        .map(|line| format!("{}\n", line.trim_end()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::wrapped;

    #[test]
    fn wraps_lines_at_words() {
        let text = wrapped("a  ", "   ", &"word ".repeat(40));
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
        assert!(text.lines().skip(1).all(|line| line.starts_with("   word")));
        let long = "x".repeat(100);
        assert_eq!(
            wrapped("", "", &format!("a {long} b")),
            format!("a\n{long}\nb\n")
        );
    }

    #[test]
    fn removes_control_characters_from_names() {
        assert_eq!(
            wrapped("", "", "a\u{1b}[2J\u{202e}b"),
            "a\u{fffd}[2J\u{fffd}b\n"
        );
    }
}
