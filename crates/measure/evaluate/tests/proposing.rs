// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests the proposed matrices of machines of several sizes.

use rampart_evaluate::{DisturbanceRequest, EvaluateError, Proposal, Request, propose};
use rampart_host::{MachineRoot, read_machine};
use rampart_model::{
    Availability, CellPayload, Cpu, CpuId, CpuSet, DomainKind, DomainSelection, EvaluationPart,
    EvaluationSettings, GuestRole, IsolationSource, IsolationSourceKind, Machine, MeterKind, Nanos,
    SchedulingPolicy,
};

/// Returns this machine with other processors: `cores` of `threads` siblings each, numbered as
/// usual: the first sibling of every core, then the second ones.
fn machine(cores: u32, threads: u32, isolated: &str) -> Machine {
    let mut machine = read_machine(&MachineRoot::system());
    let all: CpuSet = (0..cores * threads).map(CpuId).collect();
    machine.topology.cpus = all
        .iter()
        .map(|id| Cpu {
            id,
            core: Some(id.0 % cores),
            package: Some(0),
            node: Some(0),
            siblings: (0..threads)
                .map(|thread| CpuId(id.0 % cores + thread * cores))
                .collect(),
            capacity: None,
        })
        .collect();
    machine.topology.online = all.clone();
    machine.topology.allowed = all;
    machine.topology.isolation_sources = vec![IsolationSource {
        kind: IsolationSourceKind::Unbalanced,
        name: "isolcpus=".to_owned(),
        cpus: isolated.parse().expect("CPUs"),
    }];
    machine
}

fn guest(role: GuestRole) -> DomainSelection {
    DomainSelection {
        guest: Some(role),
        ..DomainSelection::of(DomainKind::Vm)
    }
}

fn availability() -> Vec<Availability> {
    [
        DomainSelection::of(DomainKind::Host),
        DomainSelection::of(DomainKind::Task),
        DomainSelection::of(DomainKind::Container),
        guest(GuestRole::RealTime),
        guest(GuestRole::Noisy),
        guest(GuestRole::Emulated),
    ]
    .into_iter()
    .map(|domain| Availability {
        domain,
        available: true,
        description: domain.to_string(),
        findings: Vec::new(),
    })
    .collect()
}

fn five_minutes() -> Request {
    Request {
        total: Some(Nanos::from_secs(300)),
        ..Request::default()
    }
}

fn proposed(machine: &Machine, request: &Request) -> Proposal {
    propose(machine, &availability(), request).expect("a plan")
}

/// Formats `host 0-1`.
fn placed(settings: &EvaluationSettings) -> Vec<String> {
    settings
        .domains
        .iter()
        .map(|domain| format!("{} {}", domain.name, domain.cpus))
        .collect()
}

#[test]
fn assigns_a_core_to_each_domain_if_one_remains() {
    let plan = proposed(&machine(5, 1, ""), &five_minutes()).settings;
    assert_eq!(placed(&plan), ["host 1", "task 2", "container 3", "vm 4"]);
    assert_eq!(plan.housekeeping.to_string(), "0-1");
    let transfer = plan.transfer.expect("disturbances");
    assert_eq!(transfer.groups.len(), 1);
    assert_eq!(transfer.groups[0].participants.len(), 4);
    assert!(transfer.findings.is_empty());

    let plan = proposed(&machine(4, 2, ""), &five_minutes()).settings;
    assert_eq!(
        placed(&plan),
        ["host 0,4", "task 1,5", "container 2,6", "vm 3,7"]
    );
}

#[test]
fn shares_out_isolated_cpus_evenly() {
    let plan = proposed(&machine(8, 1, "2-7"), &five_minutes()).settings;
    assert_eq!(
        placed(&plan),
        ["host 0-1", "task 2-3", "container 4-5", "vm 6-7"]
    );
}

#[test]
fn reports_siblings_in_two_domains() {
    let request = Request {
        cpus: Some("1,5,2,6".parse().expect("CPUs")),
        ..five_minutes()
    };
    let plan = proposed(&machine(4, 2, ""), &request).settings;
    assert_eq!(placed(&plan), ["host 7", "task 1", "container 2", "vm 5"]);
    assert!(
        plan.findings
            .iter()
            .any(|finding| finding.what.contains("siblings"))
    );
}

#[test]
fn shares_cpus_if_there_are_too_few() {
    let proposal = proposed(&machine(2, 1, ""), &five_minutes());
    assert_eq!(
        placed(&proposal.settings),
        ["host 0", "task 1", "container 1", "vm 1"]
    );
    let transfer = proposal.settings.transfer.expect("disturbances");
    assert_eq!(transfer.groups.len(), 3);
    assert_eq!(transfer.findings.len(), 3, "the pairs that are left out");
    let blocks = transfer.groups[2]
        .disturbances
        .iter()
        .map(ToString::to_string);
    assert!(
        blocks
            .collect::<Vec<_>>()
            .contains(&"block:under:vm".to_owned())
    );
}

#[test]
fn measures_a_kind_twice_and_no_noisy_guest() {
    let request = Request {
        domains: vec![
            DomainSelection::of(DomainKind::Host),
            guest(GuestRole::RealTime),
            guest(GuestRole::RealTime),
            guest(GuestRole::Noisy),
        ],
        ..five_minutes()
    };
    let proposal = proposed(&machine(4, 1, ""), &request);
    assert_eq!(placed(&proposal.settings), ["host 1", "vm-1 2", "vm-2 3"]);
    assert_eq!(proposal.noisy_guests.len(), 1);
    assert_eq!(proposal.noisy_guests[0].name, "vm:noisy");
    assert_eq!(
        proposal.noisy_guests[0].cpus,
        proposal.settings.housekeeping
    );
    let about_noisy_guest = |finding: &rampart_model::Finding| finding.location == "vm:noisy";
    assert!(proposal.settings.findings.iter().any(about_noisy_guest));
    let usual = proposed(&machine(4, 1, ""), &five_minutes());
    assert!(usual.noisy_guests.is_empty());
    assert!(
        !placed(&usual.settings)
            .iter()
            .any(|name| name.contains("tcg"))
    );
}

#[test]
fn matrix_and_disturbances_fit_in_the_time() {
    for seconds in [30, 60, 120, 300, 3600] {
        let request = Request {
            total: Some(Nanos::from_secs(seconds)),
            ..Request::default()
        };
        let plan = proposed(&machine(5, 1, ""), &request).settings;
        let cells = 4 * 3 * u64::from(plan.repetitions);
        let rounds = plan
            .transfer
            .iter()
            .map(|transfer| transfer.quiet.0)
            .sum::<u64>();
        let used = plan.run_duration.0 * cells + rounds;
        assert!(used <= Nanos::from_secs(seconds).0, "{seconds} s");
        assert_eq!(plan.transfer.is_some(), seconds >= 120, "{seconds} s");
    }
}

#[test]
fn without_a_time_open_comparisons_are_measured_on() {
    let limit =
        |machine: &Machine, request: &Request| proposed(machine, request).settings.until_decided;
    let mut machine = machine(8, 1, "");
    assert_eq!(
        limit(&machine, &Request::default()),
        Some(Nanos::from_secs(360))
    );
    // Who gives a time gets no more.
    assert_eq!(limit(&machine, &five_minutes()), None);
    machine.virtualisation.emulated = true;
    assert_eq!(limit(&machine, &Request::default()), None);
}

/// Returns the last `--for TIME` of a text, as a shell parses it.
fn time_in(text: &str) -> Nanos {
    let (_, rest) = text.rsplit_once("--for ").expect("a time");
    let word = rest.split([' ', ',', ';']).next().expect("a word");
    word.parse()
        .unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// The time in an error or a gap is enough, on real and on emulated machines.
#[test]
fn the_time_of_a_fix_is_enough() {
    let mut machine = machine(5, 1, "");
    for emulated in [false, true] {
        machine.virtualisation.emulated = emulated;
        for seconds in 1..180 {
            let with = |total, disturbances: Option<&str>| Request {
                total: Some(total),
                disturbances: disturbances.map(|disturb| vec![disturb.parse().expect("a request")]),
                ..Request::default()
            };
            let total = Nanos::from_secs(seconds);
            for disturb in [None, Some("none"), Some("block"), Some("cache")] {
                if let Err(refused) = propose(&machine, &availability(), &with(total, disturb)) {
                    let enough = with(time_in(&refused.to_string()), disturb);
                    let again = propose(&machine, &availability(), &enough);
                    assert!(again.is_ok(), "{refused}: {again:?}");
                }
            }
            let Ok(proposal) = propose(&machine, &availability(), &with(total, None)) else {
                continue;
            };
            let of_disturbances = |gap: &&rampart_model::NotMeasured| {
                matches!(
                    gap.part,
                    EvaluationPart::Disturbances | EvaluationPart::Disturbance(_)
                )
            };
            for gap in proposal.not_measured.iter().filter(of_disturbances) {
                let fix = gap.findings[0].fix.as_deref().expect("a fix");
                let again = proposed(&machine, &with(time_in(fix), None));
                assert!(again.settings.transfer.is_some(), "{seconds} s: {fix}");
                let still = again.not_measured.iter().any(|one| one.part == gap.part);
                assert!(!still, "{seconds} s: {fix}");
            }
        }
    }
}

#[test]
fn reports_a_reason_for_each_omitted_part() {
    let reason = |request: &Request, machine: &Machine| {
        let proposal = proposed(machine, request);
        assert_eq!(proposal.settings.transfer, None);
        proposal
            .not_measured
            .into_iter()
            .find(|gap| gap.part == EvaluationPart::Disturbances)
            .expect("a reason")
            .findings[0]
            .to_string()
    };
    let machine = machine(5, 1, "");
    let other = Request {
        policy: Some(SchedulingPolicy::Other),
        ..five_minutes()
    };
    assert!(reason(&other, &machine).contains("time-sharing policy"));
    let nothing = Request {
        disturbances: Some(vec![DisturbanceRequest::Nothing]),
        ..five_minutes()
    };
    assert!(reason(&nothing, &machine).contains("not requested"));
    let alone = Request {
        domains: vec![DomainSelection::of(DomainKind::Task)],
        ..five_minutes()
    };
    assert!(reason(&alone, &machine).contains("no two domains"));
    let short = Request {
        total: Some(Nanos::from_secs(40)),
        ..Request::default()
    };
    assert!(reason(&short, &machine).contains("not enough"));
    // A requested one is an error.
    let explicit = Request {
        disturbances: Some(vec!["block".parse().expect("a request")]),
        ..short
    };
    let refused = propose(&machine, &availability(), &explicit).expect_err("too short");
    assert!(
        matches!(refused, EvaluateError::TooShortForDisturbances { .. }),
        "{refused}"
    );
}

#[test]
fn measures_meters_without_a_kernel_only_in_cells() {
    let machine = machine(8, 1, "");
    let mut available = availability();
    let cell = DomainSelection::of(DomainKind::Cell);
    available.push(Availability {
        domain: cell,
        available: true,
        description: cell.to_string(),
        findings: Vec::new(),
    });
    let mut request = Request {
        domains: vec![DomainSelection::of(DomainKind::Task), cell],
        meters: vec![MeterKind::Wakeup, MeterKind::Irq],
        ..five_minutes()
    };
    let Proposal {
        settings,
        not_measured,
        ..
    } = propose(&machine, &available, &request).expect("a plan");
    assert_eq!(settings.meters.len(), 2);
    let irq_in = |domain: &str| EvaluationPart::Meter {
        domain: domain.to_owned(),
        meter: MeterKind::Irq,
    };
    let left_out: Vec<_> = not_measured.into_iter().map(|gap| gap.part).collect();
    assert!(left_out.contains(&irq_in("task")), "{left_out:?}");
    assert!(!left_out.contains(&irq_in("cell")), "{left_out:?}");

    // If no domain can, nothing can be measured.
    request.domains.pop();
    request.meters = vec![MeterKind::Irq];
    let error = propose(&machine, &available, &request).expect_err("no cell");
    let EvaluateError::BadPlan { findings } = error else {
        panic!("{error}");
    };
    assert!(findings[0].what.contains("not measured here"));

    // Of several meters, those that can measure in any domain remain.
    request.meters.push(MeterKind::Wakeup);
    let proposal = propose(&machine, &available, &request).expect("a plan");
    assert_eq!(proposal.settings.meters.len(), 1);
    let mut left_out = proposal.not_measured.iter();
    assert!(left_out.any(|gap| gap.part == irq_in("task")));
}

#[test]
fn leaves_out_what_spins_on_an_emulated_machine_with_few_real_cpus() {
    let detached = DomainSelection::of(DomainKind::Detached);
    let mut available = availability();
    available.push(Availability {
        domain: detached,
        available: true,
        description: detached.to_string(),
        findings: Vec::new(),
    });
    let with = |emulated: bool, emulator_cpus, domains: &[DomainSelection]| {
        let mut machine = machine(6, 1, "");
        machine.virtualisation.emulated = emulated;
        let request = Request {
            domains: domains.to_vec(),
            emulator_cpus,
            ..five_minutes()
        };
        propose(&machine, &available, &request).expect("a plan")
    };
    let measured = |proposal: &Proposal| {
        let mut domains = proposal.settings.domains.iter();
        domains.any(|domain| domain.selection == detached)
    };
    let named = [DomainSelection::of(DomainKind::Host), detached];
    for (emulated, real, domains, expected) in [
        (false, None, &[][..], true),
        (true, Some(6), &[], true),
        (true, Some(5), &[], false),
        (true, None, &[], false),
        (true, Some(2), &named, true),
    ] {
        let proposal = with(emulated, real, domains);
        assert_eq!(measured(&proposal), expected, "{emulated} {real:?}");
        let part = EvaluationPart::Domain("detached".to_owned());
        let mut gaps = proposal.not_measured.iter();
        let gap = gaps.find(|gap| gap.part == part);
        assert_eq!(gap.is_none(), expected, "{gap:?}");
        let Some(gap) = gap else { continue };
        let text = gap.findings[0].to_string();
        let found = real.map_or("an unknown number of".to_owned(), |real| real.to_string());
        let values = format!("6 emulated CPUs on {found} real ones");
        assert!(text.contains(&values), "{text}");
        assert!(
            text.contains("--domains host,task,container,vm,detached"),
            "{text}"
        );
    }
}

/// As on a board with more domains than real-time CPUs, which then share all of them.
#[test]
fn what_runs_on_one_cpu_is_measured_on_one_of_the_shared_cpus() {
    let linux = DomainSelection {
        cell: Some(CellPayload::Linux),
        ..DomainSelection::of(DomainKind::Cell)
    };
    let one_cpu = [DomainKind::Detached, DomainKind::Cell].map(DomainSelection::of);
    let mut available = availability();
    available.extend([linux].iter().chain(&one_cpu).map(|&domain| Availability {
        domain,
        available: true,
        description: domain.to_string(),
        findings: Vec::new(),
    }));
    let proposal = propose(&machine(4, 1, "1-3"), &available, &five_minutes()).expect("a plan");
    for domain in &proposal.settings.domains {
        let cpus = match domain.selection {
            selection if selection.kind == DomainKind::Host => continue,
            selection if one_cpu.contains(&selection) => 1,
            _ => 3,
        };
        assert_eq!(domain.cpus.len(), cpus, "{domain:?}");
    }
    let measured = |one: &DomainSelection| {
        let mut domains = proposal.settings.domains.iter();
        domains.any(|domain| domain.selection == *one)
    };
    assert!(one_cpu.iter().all(measured), "{:?}", proposal.not_measured);
}
