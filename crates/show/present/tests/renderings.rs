// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every rendering of every test document.

use rampart_model::{
    Answers, Bench, Distribution, Evaluation, EvaluationPart, EvaluationState, Finding,
    MEASUREMENT_SCHEMA_VERSION, Measurement, MeterKind, Nanos, OtherPrograms, Question, Series,
    Severity, Verdict, VerdictFigures, VerdictOutcome,
};
use rampart_present::{
    Element, RunSummary, TerminalOptions, ascii, html, json, junit, markdown, measurement, report,
    terminal,
};

use crate::documents;

fn plain(evaluation: &Evaluation, width: u16) -> String {
    terminal(
        &report(evaluation),
        TerminalOptions {
            width,
            colour: false,
        },
    )
}

#[test]
fn renders_the_full_document_in_80_columns() {
    insta::assert_snapshot!(plain(documents::named("full"), 80));
}

#[test]
fn renders_the_full_document_in_120_columns() {
    insta::assert_snapshot!(plain(documents::named("full"), 120));
}

/// The first answer of an evaluation, as Markdown.
fn first_answer(evaluation: &Evaluation) -> String {
    let of = report(evaluation)
        .into_iter()
        .filter(|element| matches!(element, Element::FirstAnswer { .. }));
    markdown(&of.collect::<Vec<_>>())
}

#[test]
fn every_document_has_a_first_answer() {
    let mut texts = String::new();
    for (name, evaluation) in documents::all() {
        texts.push_str(&format!("{name}\n\n{}\n", first_answer(evaluation)));
    }
    insta::assert_snapshot!(texts);
}

#[test]
fn the_next_command_follows_from_what_is_missing() {
    let command = |evaluation: &Evaluation| {
        let text = first_answer(evaluation);
        let line = text
            .lines()
            .rev()
            .find_map(|line| line.strip_prefix("    "));
        line.expect("a command").to_owned()
    };
    let mut evaluation = documents::named("full").clone();
    evaluation
        .verdicts
        .retain(|of| of.outcome != VerdictOutcome::Inconclusive);
    assert_eq!(command(&evaluation), "rampart plan propose --out plan.toml");
    evaluation.bench = Bench::Ssh {
        host: "root@board".to_owned(),
    };
    let error = Finding::new(Severity::Error, "/proc/version", "not built for real time");
    evaluation.machine.findings.push(error);
    assert_eq!(command(&evaluation), "rampart check --on ssh:root@board");
    evaluation.bench = Bench::Local;
    evaluation.machine.findings.clear();
    let open = evaluation.verdicts.first_mut().expect("a verdict");
    open.outcome = VerdictOutcome::Inconclusive;
    evaluation.settings.total = Nanos::from_secs(120);
    let given = "bin/rampart evaluate --deadline 250us --out x --for=2m --json --cpus 2-3";
    evaluation.command = given.split(' ').map(str::to_owned).collect();
    assert_eq!(
        command(&evaluation),
        "rampart evaluate --deadline 250us --cpus 2-3 --for 20m"
    );
    // Whatever is decided is on what a load adds to other programs.
    evaluation.verdicts[0].figures = Some(VerdictFigures::Interference {
        idle: String::new(),
        factors: Vec::new(),
        tolerance: 1.5,
        batches: (1, 1),
        answers: Some(Answers {
            beside: Some(OtherPrograms {
                measurements: 7,
                of: 8,
                programs: "`make`, all together about a CPU".to_owned(),
            }),
            ..Answers::default()
        }),
    });
    assert_eq!(
        command(&evaluation),
        "rampart evaluate --deadline 250us --for=2m --cpus 2-3"
    );
    let text = first_answer(&evaluation);
    assert!(
        text.contains("End the other programs that use the CPUs (`make`"),
        "{text}"
    );
    // A load that reaches the domain does so whatever runs beside it.
    evaluation.verdicts[0].outcome = VerdictOutcome::Leaks;
    let text = first_answer(&evaluation);
    assert!(!text.contains("End the other programs"), "{text}");
    evaluation.state = EvaluationState::EndedEarly;
    assert_eq!(
        command(&evaluation),
        "rampart evaluate --deadline 250us --for=2m --cpus 2-3"
    );
    assert!(first_answer(&evaluation).starts_with("So far: "));
}

#[test]
fn what_hurts_most_is_measured_and_a_finding_is_not() {
    let line = |evaluation: &Evaluation, label: &str| {
        let text = first_answer(evaluation);
        let line = text
            .lines()
            .find(|line| line.starts_with(&format!("**{label}:**")));
        line.unwrap_or_default().to_owned()
    };
    let hurts = |evaluation: &Evaluation| line(evaluation, "What hurts most");
    let finding = |evaluation: &Evaluation| line(evaluation, "First finding");
    let mut evaluation = documents::named("full").clone();
    let text = hurts(&evaluation);
    assert!(
        text.contains("under a cache load on other CPUs as while idle"),
        "{text}"
    );
    assert_eq!(
        finding(&evaluation),
        "",
        "a warning is not the first thing to fix"
    );
    let rule = rampart_rules::rule("preempt-rt").expect("a rule");
    let error = rule.finding("/proc/version", "of the rule");
    let mut with_error = evaluation.clone();
    with_error.machine.findings.push(error.fix("apt install x"));
    assert_eq!(hurts(&with_error), text);
    let text = finding(&with_error);
    assert!(text.contains("not built with PREEMPT_RT"), "{text}");
    assert!(
        text.contains("Fix: apt install x. 1 more finding"),
        "{text}"
    );
    evaluation
        .verdicts
        .retain(|verdict| verdict.question != Question::Interference);
    assert_eq!(hurts(&evaluation), "", "nothing was measured");
    let text = finding(&evaluation);
    assert!(text.contains("Idle state C2"), "{text}");
    evaluation.machine.findings.clear();
    assert_eq!(finding(&evaluation), "");
    evaluation.machine.virtualisation.steal = Some(0.031);
    assert!(hurts(&evaluation).contains("took 3.1\u{a0}% of its CPU time"));
}

#[test]
fn what_a_machine_does_not_have_is_one_line() {
    let mut evaluation = documents::named("full").clone();
    evaluation
        .not_measured
        .retain(|one| one.part == EvaluationPart::Domain("vm".to_owned()));
    let text = plain(&evaluation, 80);
    assert!(text.contains("not reached: vm."), "{text}");
    assert!(!text.contains("virtualisation"), "{text}");
    // A domain that was to be measured is not missing by nature.
    evaluation.not_measured[0].part = EvaluationPart::Domain("task".to_owned());
    assert!(plain(&evaluation, 80).contains("error: /dev/kvm"));
}

/// The outcomes of the answers about the deadline, as the page draws them.
fn deadline_outcomes(evaluation: &Evaluation) -> Vec<String> {
    let elements = serde_json::to_value(report(evaluation)).expect("page data");
    let answers = elements.as_array().expect("elements").iter();
    let badges = answers
        .filter_map(|element| element["answers"].as_array())
        .flatten()
        .flat_map(|answer| answer["badges"].as_array().expect("badges"));
    badges
        .filter(|badge| badge["about"] == "deadline")
        .map(|badge| badge["outcome"].as_str().expect("an outcome").to_owned())
        .collect()
}

#[test]
fn a_missed_deadline_is_a_failure_only_if_the_user_set_it() {
    let mut evaluation = documents::named("full").clone();
    assert!(deadline_outcomes(&evaluation).contains(&"fails".to_owned()));
    evaluation.settings.deadline_from_user = false;
    let outcomes = deadline_outcomes(&evaluation);
    assert!(!outcomes.contains(&"fails".to_owned()), "{outcomes:?}");
    assert!(outcomes.contains(&"holds".to_owned()), "{outcomes:?}");
}

#[test]
fn renders_a_killed_evaluation() {
    insta::assert_snapshot!(plain(documents::named("killed"), 80));
}

#[test]
fn renders_an_emulated_machine() {
    insta::assert_snapshot!(plain(documents::named("single-cpu"), 80));
}

#[test]
fn renders_an_evaluation_without_records() {
    insta::assert_snapshot!(plain(documents::named("empty"), 80));
}

#[test]
fn renders_the_effects_of_a_plan() {
    insta::assert_snapshot!(plain(documents::named("plan"), 100));
}

#[test]
fn renders_a_mapped_access_beside_a_trapped_one() {
    let mut evaluation = documents::named("killed").clone();
    let mut record = evaluation.records[0].clone();
    record.settings.meter = MeterKind::Mmio;
    let all = |time| Distribution::from_values([Nanos(time); 100]);
    record.cpus.truncate(1);
    let [primary, ..] = record.cpus[0].series.as_slice() else {
        panic!("no series");
    };
    let mut mapped = primary.clone();
    record.cpus[0].series[0].series = Series::TrappedAccess;
    record.cpus[0].series[0].seen = all(777);
    (mapped.series, mapped.seen) = (Series::MappedAccess, all(33));
    record.cpus[0].series.push(mapped);
    evaluation.records = vec![record];
    let text = plain(&evaluation, 100);
    let title =
        "mmio: one read of a register on a page that traps, every 1 ms, no operating system";
    assert!(text.contains(title), "{text}");
    let line = text.lines().find(|line| line.contains("page mapped"));
    assert!(line.is_some_and(|line| line.contains("33 ns")), "{text}");
    assert!(text.contains("777 ns"), "{text}");
}

#[test]
fn renders_a_wide_machine() {
    insta::assert_snapshot!(plain(documents::named("wide"), 80));
}

#[test]
fn lines_fit_unless_a_word_does_not() {
    for (name, evaluation) in documents::all() {
        for width in [60, 80, 100, 200] {
            for line in plain(evaluation, width).lines() {
                let longest = line
                    .split(' ')
                    .map(|word| word.chars().count())
                    .max()
                    .unwrap_or(0);
                assert!(
                    line.chars().count() <= usize::from(width) || longest > usize::from(width) / 2,
                    "{name} at {width}: {line}"
                );
            }
        }
    }
}

#[test]
fn colour_adds_nothing_but_colour() {
    for (name, evaluation) in documents::all() {
        let painted = terminal(
            &report(evaluation),
            TerminalOptions {
                width: 80,
                colour: true,
            },
        );
        assert!(painted.contains("\u{1b}["), "{name}");
        let mut bare = String::new();
        let mut rest = painted.as_str();
        while let Some((before, after)) = rest.split_once("\u{1b}[") {
            bare.push_str(before);
            rest = after.split_once('m').map_or("", |(_, after)| after);
        }
        bare.push_str(rest);
        let trimmed = |text: &str| {
            text.lines()
                .map(str::trim_end)
                .collect::<Vec<_>>()
                .join("\n")
        };
        assert_eq!(trimmed(&bare), trimmed(&plain(evaluation, 80)), "{name}");
    }
}

#[test]
fn a_name_cannot_steer_the_terminal() {
    let mut evaluation = documents::named("full").clone();
    evaluation.machine.host_name = "x\u{1b}[2J\u{7}y".to_owned();
    evaluation.settings.domains[0].name = "a\u{1b}b".to_owned();
    evaluation.comparison.sentences[0].0 = "a\u{1b}b".to_owned();
    assert!(!plain(&evaluation, 80).contains(['\u{1b}', '\u{7}']));
}

#[test]
fn json_reads_back_as_the_same_document() {
    for (name, evaluation) in documents::all() {
        let read: Evaluation = serde_json::from_str(&json(evaluation)).expect(name);
        assert_eq!(&read, evaluation, "{name}");
    }
}

#[test]
fn embeds_elements_and_document_without_markup() {
    for (name, evaluation) in documents::all() {
        let page = html(evaluation);
        if !page.contains(r#"id="evaluation">"#) {
            // It was built without the interactive page.
            assert!(page.contains("This is the plain page."), "{name}");
            continue;
        }
        let embedded = |id: &str| {
            let (_, rest) = page.split_once(&format!(r#"id="{id}">"#)).expect(name);
            rest.split_once("</script>").expect(name).0
        };
        let (elements, document) = (embedded("elements"), embedded("evaluation"));
        let read: Evaluation = serde_json::from_str(document).expect(name);
        assert_eq!(&read, evaluation, "{name}");
        assert!(!document.contains('<') && !elements.contains('<'), "{name}");
        let own = page.len() - document.len() - elements.len();
        assert!(own < 300_000, "the page itself has {own} bytes");
    }
}

#[test]
fn junit_has_a_case_for_each_verdict() {
    for (name, evaluation) in documents::all() {
        let report = junit(evaluation);
        // A domain's own disturbance is no verdict, and no failure.
        let own = |verdict: &Verdict| {
            verdict.disturbance.as_ref().is_some_and(|by| {
                by.domain == verdict.domain && by.side == rampart_model::Side::Inside
            })
        };
        let count = |outcome| {
            let verdicts = evaluation.verdicts.iter();
            let of = |verdict: &&Verdict| {
                verdict.outcome == outcome
                    && (outcome == VerdictOutcome::Inconclusive || !own(verdict))
            };
            verdicts.filter(of).count()
        };
        let failures = count(VerdictOutcome::Fails) + count(VerdictOutcome::Leaks);
        let skipped = count(VerdictOutcome::Inconclusive) + evaluation.not_measured.len();
        let cases = evaluation.verdicts.len() + evaluation.not_measured.len();
        assert_eq!(report.matches("<testcase ").count(), cases, "{name}");
        assert_eq!(report.matches("<failure ").count(), failures, "{name}");
        assert_eq!(report.matches("<skipped ").count(), skipped, "{name}");
        for verdict in &evaluation.verdicts {
            let id = verdict
                .id
                .replace('&', "&amp;")
                .replace('<', "&lt;")
                .replace('>', "&gt;");
            assert!(report.contains(&id), "{name}: {id}");
        }
    }
}

#[test]
fn renders_the_transfer_matrix_in_80_columns() {
    insta::assert_snapshot!(plain(documents::named("transfers"), 80));
}

#[test]
fn reports_a_control_without_effect() {
    let mut evaluation = documents::named("transfers").clone();
    let control = "transfer/task/wakeup/block:task";
    let affected = junit(&evaluation);
    assert!(plain(&evaluation, 100).contains("control 0.9"));
    let verdict = evaluation
        .verdicts
        .iter_mut()
        .find(|verdict| verdict.id == control)
        .expect("the control");
    verdict.outcome = VerdictOutcome::Inconclusive;
    let skipped = |report: &str| report.matches("<skipped ").count();
    assert_eq!(skipped(&junit(&evaluation)), skipped(&affected) + 1);
    assert!(plain(&evaluation, 100).contains("NO EFFECT"));
}

#[test]
fn renders_a_measurement_with_the_causes_of_its_worst_samples() {
    let evaluation = documents::named("transfers");
    let record = evaluation.record("task/wakeup/idle").expect("a record");
    let run = record.runs[0].clone();
    let document = Measurement {
        schema_version: MEASUREMENT_SCHEMA_VERSION,
        tool_version: String::new(),
        started: run.started,
        started_monotonic: run.started_monotonic,
        ended_early: false,
        domain: record.domain.clone(),
        settings: record.settings.clone(),
        cpus: record.cpus.clone(),
        threads: run.threads,
        shield: run.shield,
        effective_settings: run.effective_settings,
        guest: run.guest,
        cell: run.cell,
        detached: run.detached,
        explained: run.explained,
        findings: Vec::new(),
    };
    insta::assert_snapshot!(terminal(
        &measurement(&document),
        TerminalOptions::default()
    ));
}

#[test]
fn merges_findings_that_differ_in_a_value() {
    let mut evaluation = documents::named("full").clone();
    let steal = |value: &str| {
        Finding::new(Severity::Warning, "CPU 1", "part of it was given to others")
            .values(value, "0 %")
    };
    evaluation.findings = ["2 %", "3 %", "2 %", "7 %"].map(steal).to_vec();
    let text = plain(&evaluation, 200);
    assert_eq!(text.matches("part of it was given to others").count(), 1);
    assert!(text.contains("(expected 0 %, found 2 %; also 3 %, 7 %)"));
}

#[test]
fn marks_a_simulated_machine_that_reports_real_hardware() {
    let mut evaluation = documents::named("transfers").clone();
    evaluation.machine.virtualisation.emulated = false;
    evaluation.machine.virtualisation.hypervisor = None;
    for record in &mut evaluation.records {
        record.emulated = false;
    }
    let text = plain(&evaluation, 120);
    assert!(!text.contains("bare metal"));
    assert!(
        text.contains("Simulated machine: microseconds are not real.")
            && text.contains("EMULATED wakeup")
    );
}

/// The texts of all entries of tables that a terminal shows.
fn entries_of_tables(elements: &[Element]) -> Vec<String> {
    let mut texts = Vec::new();
    for element in elements {
        match element {
            Element::Table(table) => {
                let shown: Vec<usize> = (0..table.columns.len())
                    .filter(|index| !table.columns[*index].detail)
                    .collect();
                let groups = table.groups.iter().filter(|group| !group.detail);
                for row in groups.flat_map(|group| &group.rows) {
                    let entries = shown.iter().filter_map(|index| row.entries.get(*index));
                    texts.extend(entries.map(|entry| entry.text.plain()));
                }
            }
            Element::Columns { columns, .. } => {
                texts.extend(columns.iter().flat_map(|column| entries_of_tables(column)));
            }
            Element::Switched {
                leading: true,
                elements,
                ..
            } => texts.extend(entries_of_tables(elements)),
            _ => {}
        }
    }
    texts
}

#[test]
fn no_figure_is_separated_from_its_unit_on_a_narrow_terminal() {
    let mut checked = 0;
    for (name, evaluation) in documents::all() {
        let elements = report(evaluation);
        let texts = entries_of_tables(&elements);
        for width in [60, 80] {
            let shown = plain(evaluation, width);
            for text in &texts {
                for word in text.split(' ').filter(|word| word.chars().count() < 30) {
                    let word = word.replace('\u{a0}', " ");
                    assert!(
                        shown.contains(&word),
                        "{name}, {width} columns: {word}\n{shown}"
                    );
                    checked += 1;
                }
            }
            let widest = shown.lines().filter(|line| line.contains('│'));
            let widest = widest.map(|line| line.chars().count()).max();
            assert!(
                widest <= Some(usize::from(width)),
                "{name}: {widest:?}\n{shown}"
            );
        }
    }
    assert!(checked > 1000, "only {checked} words");
}

#[test]
fn every_character_of_a_report_has_one_in_ascii() {
    for (name, evaluation) in documents::all() {
        let text = plain(evaluation, 80);
        let own = ascii(&text);
        assert!(own.is_ascii(), "{name}");
        for (line, of) in own.lines().zip(text.lines()) {
            assert_eq!(line.chars().count(), of.chars().count(), "{of}");
            let unknown = |line: &str| line.matches('?').count();
            assert_eq!(unknown(line), unknown(of), "{name}: {of}");
        }
    }
}

#[test]
fn a_log_has_one_line_for_many_runs() {
    let evaluation = documents::named("full");
    let runs = evaluation.records.iter();
    let mut runs: Vec<_> = runs
        .flat_map(|record| {
            record
                .runs
                .iter()
                .map(|run| (record.id.as_str(), run.clone()))
        })
        .collect();
    runs.sort_by_key(|(_, run)| run.order);
    let mut summary = RunSummary::default();
    assert_eq!(summary.take(), None);
    for (record, run) in &runs {
        summary.add(record, run);
    }
    let line = summary.take().expect("a line");
    let last = runs.last().expect("a run").1.order + 1;
    assert!(line.starts_with(&format!("runs 1–{last} of ")), "{line}");
    assert!(
        line.contains(" samples in ") && line.contains("worst "),
        "{line}"
    );
    assert_eq!(summary.take(), None);

    // The reasons of a record are printed once.
    let (record, mut run) = runs.swap_remove(0);
    let reason = Finding::new(Severity::Error, "load", "it used no CPU time");
    run.invalid = vec![reason];
    assert_eq!(summary.add(record, &run).len(), 1);
    assert!(summary.add(record, &run).is_empty());
    let line = summary.take().expect("a line");
    assert!(line.ends_with("; 2 invalid"), "{line}");
}
