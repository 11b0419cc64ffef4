// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Exports report every field that they do not support.

use std::collections::BTreeSet;

use rampart_model::Severity;
use rampart_plan::{DomainField, Engine, MachineField, Means, containers, libvirt, systemd};

use super::{DESK, PLANT, Resolved};
use crate::example_machines;

#[test]
fn findings_are_comments_in_the_files_too() {
    for (machine, plan) in [("server", PLANT), ("laptop", DESK)] {
        for (tool, exported) in Resolved::on(machine, plan).exports() {
            assert!(!exported.findings.is_empty(), "{tool}");
            let words = |text: &str| -> Vec<String> {
                let text = text.replace(['#', '\n'], " ").replace("- -", "--");
                text.split_whitespace().map(str::to_owned).collect()
            };
            let files: String = exported
                .files
                .iter()
                .map(|file| words(&file.text).join(" ").replace(" - ", " "))
                .collect();
            for finding in &exported.findings {
                let wanted = words(&finding.to_string()).join(" ").replace(" - ", " ");
                let written =
                    files.contains(&wanted.replace("--", "- -")) || files.contains(&wanted);
                // A domain without a file is reported on standard error only.
                let not_written = finding.what.starts_with("not written");
                assert!(written || not_written, "{machine} {tool}: {finding}");
            }
        }
    }
}

#[test]
fn reports_every_unsupported_field() {
    let plan = "[machine]\nhousekeeping = \"0\"\nsmt = \"off\"\npolicy = \"warn\"\n\
        [[domain]]\nname = \"a\"\nkind = \"container\"\ncpus = \"1\"\n\
        container = { engine = \"docker\", rootfs = \"/r\" }\ndeadline = \"1ms\"\nservice = \"2\"\n\
        policy = { fifo = 2 }\n\
        threads = [{ match = \"w\", policy = { deadline = { runtime = \"1ms\", deadline = \"2ms\", period = \"2ms\" } } }]\n\
        interrupts = [{ action = \"eth*\" }]\ncache = { ways = 2, exclusive = true, bandwidth-percent = 9 }\n\
        [[domain]]\nname = \"c\"\nkind = \"cell\"\ncpus = \"3\"\nmemory = { size = \"2MiB\" }\nimage = \"/c\"\n\
        [[standby]]\nname = \"s\"\nkernel = \"/k\"\ninitramfs = \"/i\"\n\
        [host]\nswappiness = \"expect\"\n[boot]\narguments = [\"quiet\"]\nreboot = \"plan\"\n";
    let around = rampart_model::Environment::default();
    let resolved = Resolved::of(example_machines::quad(), around, plan);
    let subject = resolved.subject();
    let machine = [
        MachineField::SiblingsOffline,
        MachineField::OtherInterrupts,
        MachineField::Settings,
        MachineField::ExpectedSettings,
        MachineField::BootArguments,
        MachineField::Reboot,
        MachineField::Standby,
    ];
    let domain = [
        DomainField::Isolation,
        DomainField::Reservation,
        DomainField::Deadline,
        DomainField::Service,
        DomainField::Threads,
        DomainField::Interrupts,
        DomainField::CacheWays,
        DomainField::CacheExclusive,
        DomainField::Bandwidth,
    ];
    for exported in [
        systemd(&subject, Means::SystemdAlone),
        systemd(&subject, Means::Rampart("/r")),
        containers(&subject, Engine::Docker),
    ] {
        let reported: BTreeSet<&str> = exported
            .findings
            .iter()
            .flat_map(|finding| finding.location.split(", ").skip(1))
            .collect();
        for word in machine
            .iter()
            .map(|field| field.word())
            .chain(domain.iter().map(|field| field.word()))
        {
            let word = word.split(", ").next().unwrap_or(word);
            assert!(reported.contains(word), "{word}: {reported:?}");
        }
    }
}

#[test]
fn reports_domains_that_are_not_written() {
    let resolved = Resolved::on("server", PLANT);
    let exported = libvirt(&resolved.subject(), None).expect("XML");
    let not: Vec<String> = exported
        .findings
        .iter()
        .filter(|finding| finding.what.starts_with("not written"))
        .map(|finding| finding.location.clone())
        .collect();
    assert_eq!(not, ["domain `press-control`", "domain `logger`"]);
    let one = libvirt(&resolved.subject(), Some("vision")).expect("XML");
    assert_eq!(one.files.len(), 1);
    assert!(
        one.findings
            .iter()
            .all(|finding| !finding.what.starts_with("not written"))
    );
    for finding in &exported.findings {
        let has_fix = finding.fix.is_some() || finding.severity == Severity::Note;
        assert!(has_fix, "{finding}");
    }
}

#[test]
fn only_rampart_starts_a_program_that_detaches() {
    let plan = "[machine]\nhousekeeping = \"0-2\"\n\
        [[domain]]\nname = \"loop\"\nkind = \"detached\"\ncpus = \"3\"\nrun = [\"/loop\"]\n";
    let around = rampart_model::Environment::default();
    let resolved = Resolved::of(example_machines::quad(), around, plan);
    let subject = resolved.subject();
    let with = systemd(&subject, Means::Rampart("/r"));
    let starts = |file: &rampart_plan::ExportedFile| file.text.contains("up --foreground loop");
    assert!(with.files.iter().any(starts), "{:?}", with.files);
    for (tool, exported) in resolved.exports() {
        // TuneD writes no domain, and its file has the settings of the machine.
        if ["systemd", "tuned"].contains(&tool) {
            continue;
        }
        let refused = |finding: &rampart_model::Finding| {
            finding.location.contains("`loop`") && finding.what.starts_with("not written")
        };
        let findings = &exported.findings;
        assert!(findings.iter().any(refused), "{tool}: {findings:?}");
    }
    for (tool, exported) in resolved.exports() {
        let runs = |file: &rampart_plan::ExportedFile| file.text.contains("/loop");
        assert!(
            !exported.files.iter().any(runs),
            "{tool}: {:?}",
            exported.files
        );
    }
}

#[test]
fn only_rampart_lets_a_user_take_cpus() {
    let plan = "[machine]\nhousekeeping = \"0-2\"\n\
        [[domain]]\nname = \"loop\"\nkind = \"detached\"\ncpus = \"3\"\nowner = 1000\n";
    let around = rampart_model::Environment::default();
    let resolved = Resolved::of(example_machines::quad(), around, plan);
    let machine = &resolved.machine;
    let readings = rampart_rules::Readings::default();
    let subject = rampart_rules::Subject {
        machine,
        readings: &readings,
    };
    let isolation = rampart_rules::Isolation::of(&resolved.resolved);
    let list = rampart_rules::change_list(&resolved.resolved, subject, &isolation, "test");
    let step = list
        .steps
        .iter()
        .find(|step| step.name == "detached-owners");
    assert_eq!(step.expect("a step").wanted, "3:1000");
    let exported = rampart_plan::tuned(&resolved.subject(), &list);
    let reported = |finding: &rampart_model::Finding| finding.location.contains("detached-owners");
    assert!(
        exported.findings.iter().any(reported),
        "{:?}",
        exported.findings
    );
    let writes = |line: &str| !line.starts_with('#') && line.contains("rampart-detach");
    assert!(!exported.files[0].text.lines().any(writes));
}
