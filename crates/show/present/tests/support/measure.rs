// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Made-up records.

use rampart_model::{
    Bucket, Condition, CpuId, CpuRecord, CpuSet, Distribution, DomainKind, EffectivePlacement,
    EffectiveSettings, EvaluatedDomain, Exposure, Finding, InterruptMove, IsolationMechanism,
    LoadKind, LoadRecord, LocatedWorst, MeterDetail, MeterKind, Nanos, Record, Run, SeriesRecord,
    Severity, ShieldReport, StressorRecord, ThreadCounters, ThreadOutcome, WarmUp, WorstEvent,
};

use super::Scenario;

/// SplitMix64 (Steele, Lea and Flood 2014): small, and the same everywhere.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 up to 1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Roughly normal: Irwin–Hall of twelve. No logarithm, whose last digit differs by platform.
    pub(crate) fn bell(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }
}

/// The shape of the latencies of a domain under a condition: usual value and spread in ns, how
/// often something larger comes, and how large that is at most.
fn shape(kind: DomainKind, condition: Condition) -> (f64, f64, f64, f64) {
    let (usual, spread, rate, largest) = match kind {
        DomainKind::Host => (5_200.0, 700.0, 0.004, 90_000.0),
        DomainKind::Task => (3_400.0, 300.0, 0.0006, 14_000.0),
        _ => (3_500.0, 320.0, 0.0007, 16_000.0),
    };
    let (slower, wilder) = match (condition.load, kind) {
        (LoadKind::Idle, _) => (1.0, 1.0),
        (LoadKind::Cpu, DomainKind::Host) => (1.9, 5.0),
        (LoadKind::Cpu, _) => (1.03, 1.1),
        (_, DomainKind::Host) => (2.4, 9.0),
        (_, _) => (1.55, 3.2),
    };
    (
        usual * slower,
        spread * slower,
        rate * wilder,
        largest * wilder,
    )
}

/// Steps of about 1.5 %, so that a document keeps a size that can be committed.
pub(crate) fn coarse(value: f64) -> Nanos {
    let value = value.max(1.0) as u64;
    let step = 1 << (63 - value.leading_zeros() as u64).saturating_sub(6);
    Nanos(value / step * step)
}

/// What a run gives to its record, for each CPU.
struct Measured {
    thread: ThreadOutcome,
    seen: Distribution,
    corrected: Option<Distribution>,
}

/// Every record of which at least one run was made. Runs of different cells alternate.
pub(crate) fn records(scenario: &Scenario) -> Vec<Record> {
    let mut records = Vec::new();
    let cells = (scenario.domains.len() * scenario.conditions.len() * scenario.meters.len()) as u32;
    let mut cell = 0;
    for meter in &scenario.meters {
        for condition in &scenario.conditions {
            for domain in &scenario.domains {
                let orders: Vec<u32> = (0..scenario.repetitions)
                    .map(|repetition| repetition * cells + cell)
                    .filter(|order| *order < scenario.made)
                    .collect();
                if !orders.is_empty() {
                    records.push(record(scenario, domain, *meter, *condition, &orders));
                }
                cell += 1;
            }
        }
    }
    records
}

fn record(
    scenario: &Scenario,
    domain: &EvaluatedDomain,
    meter: MeterKind,
    condition: Condition,
    orders: &[u32],
) -> Record {
    let plan = scenario.meter_plan(meter, &domain.cpus);
    let mut record = Record {
        emulated: false,
        id: format!("{}/{meter}/{condition}", domain.name),
        domain: domain.name.clone(),
        kind: domain.selection.kind,
        plan,
        condition,
        exposure: Exposure {
            cpus: domain.cpus.len() as u32,
            ..Exposure::default()
        },
        cpus: Vec::new(),
        worst: Vec::new(),
        runs: Vec::new(),
        invalid: Vec::new(),
    };
    // The load of this record dies in each run; that of another in its second run only.
    let dies = |index: usize| {
        record.id == "container/noise/cache@others"
            || (record.id == "task/wakeup/cpu@others" && index == 1)
    };
    let died: Vec<bool> = (0..orders.len()).map(dies).collect();
    for (order, died) in orders.iter().zip(&died) {
        let measured: Vec<Measured> = domain
            .cpus
            .iter()
            .map(|cpu| thread(scenario, &record, cpu, *order))
            .collect();
        let run = run(scenario, &record, *order, *died, &measured);
        if !died {
            count_in(&mut record, &run, measured);
        }
        record.runs.push(run);
    }
    record
        .worst
        .sort_by_key(|worst| std::cmp::Reverse(worst.value));
    record.worst.truncate(12);
    if died.iter().all(|died| *died) {
        record.invalid.push(
            Finding::new(
                Severity::Error,
                record.id.as_str(),
                "the load died in every run",
            )
            .values("0 valid runs", "at least 1")
            .fix("run the stressor's command in a terminal and read its output"),
        );
    }
    record
}

/// Adds a valid run to what the record rests on.
fn count_in(record: &mut Record, run: &Run, measured: Vec<Measured>) {
    record.exposure.runs += 1;
    record.exposure.duration += run.duration;
    for Measured {
        thread,
        seen,
        corrected,
    } in measured
    {
        record.exposure.samples += thread.samples;
        record.exposure.missed += thread.missed;
        record
            .worst
            .extend(thread.worst.iter().map(|worst| LocatedWorst {
                cpu: thread.cpu,
                run: run.order,
                since_start: worst.at.saturating_sub(run.started_monotonic),
                at: worst.at,
                value: worst.value,
            }));
        let position = record.cpus.iter().position(|of| of.cpu == thread.cpu);
        let position = position.unwrap_or_else(|| {
            record.cpus.push(CpuRecord {
                cpu: thread.cpu,
                series: vec![SeriesRecord {
                    series: record.plan.meter.primary_series(),
                    seen: Distribution::default(),
                    corrected: None,
                }],
                over_deadline: 0,
                missed: 0,
                warm_up_max: None,
            });
            record.cpus.len() - 1
        });
        let cpu = &mut record.cpus[position];
        cpu.over_deadline += thread.over_deadline;
        cpu.missed += thread.missed;
        cpu.warm_up_max = cpu.warm_up_max.max(thread.warm_up.max);
        let series = &mut cpu.series[0];
        // Once one run differs, the corrected series of all runs is needed.
        if corrected.is_some() && series.corrected.is_none() {
            series.corrected = Some(series.seen.clone());
        }
        if let Some(sum) = &mut series.corrected {
            sum.merge(corrected.as_ref().unwrap_or(&seen));
        }
        series.seen.merge(&seen);
    }
}

fn thread(scenario: &Scenario, record: &Record, cpu: CpuId, order: u32) -> Measured {
    let mut random = Random(scenario.seed ^ (u64::from(order) << 32) ^ u64::from(cpu.0));
    let noise = record.plan.meter == MeterKind::Noise;
    let (usual, spread, rate, largest) = shape(record.kind, record.condition);
    let [usual, spread, largest] = [usual, spread, largest].map(|time| time * scenario.slowness);
    let turns = scenario.run_duration.0 / scenario.interval.0;
    let started = started_monotonic(scenario, order);
    let mut values: Vec<(u64, Nanos)> = Vec::new();
    let mut missed_values: Vec<Nanos> = Vec::new();
    let mut sequence = 0;
    while sequence < turns {
        let rare = random.unit() < rate;
        let tail = if rare {
            random.unit().powi(6) * largest
        } else {
            0.0
        };
        let value = coarse(usual + spread * random.bell() + tail);
        sequence += 1;
        // Noise only records long gaps: the tick and rare events.
        if !noise || rare || sequence % 16 == 0 {
            values.push((sequence - 1, value));
        }
        let mut late = value;
        while !noise && late > scenario.interval {
            late = late.saturating_sub(scenario.interval);
            missed_values.push(late);
            sequence += 1;
        }
    }
    let mut worst: Vec<WorstEvent> = values
        .iter()
        .map(|(sequence, value)| WorstEvent {
            at: started + record.plan.warm_up + Nanos(sequence * scenario.interval.0) + *value,
            value: *value,
            sequence: *sequence,
        })
        .collect();
    worst.sort_by_key(|event| std::cmp::Reverse(event.value));
    worst.truncate(4);
    let seen = Distribution::from_values(values.iter().map(|(_, value)| *value));
    let corrected = (!missed_values.is_empty()).then(|| {
        let mut all = Distribution::from_values(missed_values.iter().copied());
        all.merge(&seen);
        all
    });
    let over =
        |deadline: Nanos| values.iter().filter(|(_, value)| *value > deadline).count() as u64;
    let stolen: Nanos = values.iter().map(|(_, value)| *value).sum();
    let thread = ThreadOutcome {
        cpu,
        placement: EffectivePlacement {
            policy: record.plan.policy,
            affinity: CpuSet::single(cpu),
            cpus_seen: CpuSet::single(cpu),
            migrations: 0,
            memory_locked: true,
            housekeeping: scenario.housekeeping.clone(),
            clock_source: "tsc".to_owned(),
        },
        counters: ThreadCounters {
            voluntary_switches: if noise { 0 } else { seen.samples },
            involuntary_switches: u64::from(noise) * 4,
            steal: Some(Nanos::ZERO),
            cpu_time: Nanos(seen.samples * 2_100),
            process_cpu_time: Nanos(seen.samples * 2_400),
            ..ThreadCounters::default()
        },
        duration: scenario.run_duration,
        samples: seen.samples,
        missed: missed_values.len() as u64,
        over_deadline: record.plan.deadline.map_or(0, over),
        lost: 0,
        worst,
        warm_up: WarmUp {
            duration: record.plan.warm_up,
            samples: record.plan.warm_up.0 / scenario.interval.0,
            max: Some(coarse(usual * 7.0 + spread * random.bell())),
        },
        detail: if noise {
            MeterDetail::Noise {
                turns: scenario.run_duration.0 / 19,
                shortest_turn: Nanos(18),
                mean_turn_picos: 18_600,
                threshold: Nanos(200),
                stolen,
            }
        } else {
            MeterDetail::Wakeup {}
        },
    };
    Measured {
        thread,
        seen,
        corrected,
    }
}

fn started_monotonic(scenario: &Scenario, order: u32) -> Nanos {
    Nanos::from_secs(86_400 * 3) + Nanos((scenario.run_duration.0 + 600_000_000) * u64::from(order))
}

fn run(scenario: &Scenario, record: &Record, order: u32, died: bool, measured: &[Measured]) -> Run {
    let seconds =
        (scenario.run_duration.0 + 600_000_000) * u64::from(order) / 1_000_000_000 + 14 * 60 + 3;
    let shielded = record.kind != DomainKind::Host;
    let container = record.kind == DomainKind::Container;
    let death = Finding::new(
        Severity::Error,
        "stress-ng",
        "the load ended before the measurement",
    )
    .values("exit status 2 after 1.2 s", "running")
    .fix("free some memory, or name a smaller load");
    Run {
        explained: Vec::new(),
        guest: None,
        cell: None,
        unwanted_activity: None,
        order,
        started: format!(
            "2026-11-21T20:{:02}:{:02}Z",
            seconds / 60 % 60,
            seconds % 60
        ),
        started_monotonic: started_monotonic(scenario, order),
        duration: scenario.run_duration,
        threads: measured
            .iter()
            .map(|measured| measured.thread.clone())
            .collect(),
        load: load(record, died),
        shield: shielded.then(|| ShieldReport {
            cpus: record.plan.cpus.clone(),
            isolation: IsolationMechanism::IsolatedPartition,
            partition: Some("isolated".to_owned()),
            interrupts: [(28, "nvme0q2", false), (31, "enp1s0-rx-2", true)]
                .map(|(interrupt, name, moved)| InterruptMove {
                    interrupt,
                    name: name.to_owned(),
                    moved,
                    reason: (!moved).then(|| "the kernel manages its affinity (EIO)".to_owned()),
                })
                .to_vec(),
            workqueues: Some(scenario.housekeeping.clone()),
            tasks_moved: 143,
            tasks_left: 22,
            findings: vec![
                Finding::new(
                    Severity::Warning,
                    "interrupt 28 (nvme0q2)",
                    "it stays on the shielded CPUs because the kernel manages its affinity",
                )
                .fix("boot with isolcpus=managed_irq,domain,2-3"),
            ],
        }),
        effective_settings: EffectiveSettings {
            runtime: if container {
                "runc 1.1.5".to_owned()
            } else {
                String::new()
            },
            capabilities: if container {
                Vec::new()
            } else {
                vec!["CAP_SYS_NICE".to_owned(), "CAP_IPC_LOCK".to_owned()]
            },
            limits: vec!["RLIMIT_MEMLOCK unlimited".to_owned()],
            placed_by: if container { "outside" } else { "itself" }.to_owned(),
            control_groups: vec![format!("v2:/rampart/{}", record.kind)],
            namespaces: if container {
                ["ipc", "mount", "network", "pid", "uts"]
                    .map(str::to_owned)
                    .to_vec()
            } else {
                Vec::new()
            },
            seccomp: container,
        },
        histogram_log: format!("histograms/{order:03}.hlog"),
        invalid: if died { vec![death] } else { Vec::new() },
        findings: Vec::new(),
    }
}

fn load(record: &Record, died: bool) -> LoadRecord {
    if record.condition.load == LoadKind::Idle {
        return LoadRecord {
            version: String::new(),
            stressors: Vec::new(),
            ran: true,
        };
    }
    let stressor = match record.condition.load {
        LoadKind::Cpu => "--cpu",
        LoadKind::Memory => "--vm",
        LoadKind::Cache => "--cache",
        LoadKind::Io | LoadKind::Idle => "--hdd",
    };
    LoadRecord {
        version: "stress-ng 0.15.06".to_owned(),
        stressors: vec![StressorRecord {
            command: [
                "stress-ng",
                stressor,
                "2",
                "--taskset",
                "0,1",
                "--timeout",
                "0",
            ]
            .map(str::to_owned)
            .to_vec(),
            cpus: super::cpus("0-1"),
            cpu_time: if died {
                Nanos::from_millis(1_200)
            } else {
                Nanos(record.plan.duration.0 * 2)
            },
            failure: died.then(|| "stress-ng: fail: out of memory (exit status 2)".to_owned()),
        }],
        ran: !died,
    }
}

/// Gives a record a thousand million samples from 1 µs to 2 s.
pub(crate) fn stretch(record: &mut Record) {
    record.exposure.samples = 0;
    for cpu in &mut record.cpus {
        // Falls by a tenth every three steps or so; each CPU a little slower than the one before.
        let mut count = 2_500_000_000_u64 / 80;
        let mut value = 1_000.0 * (1.0 + 0.2 * f64::from(cpu.cpu.0));
        let mut steps = Vec::new();
        while value < 1.9e9 {
            let lowest = Bucket::lowest(coarse(value));
            if steps.last().is_none_or(|last: &Bucket| last.0 < lowest) {
                steps.push(Bucket(lowest, count.max(1)));
            }
            count = count * 31 / 32;
            value *= 1.03;
        }
        let buckets: Vec<Bucket> = steps
            .into_iter()
            .chain([Bucket(Bucket::lowest(Nanos::from_secs(2)), 1)])
            .collect();
        let series = &mut cpu.series[0];
        series.seen = Distribution {
            samples: buckets.iter().map(|bucket| bucket.1).sum(),
            min: buckets.first().map(|bucket| bucket.0),
            max: Some(Nanos::from_secs(2)),
            buckets,
        };
        series.corrected = None;
        record.exposure.samples += series.seen.samples;
        let late = series
            .seen
            .buckets
            .iter()
            .filter(|bucket| Some(bucket.0) > record.plan.deadline);
        cpu.over_deadline = late.map(|bucket| bucket.1).sum();
    }
}

/// Takes every sample from a record.
pub(crate) fn silence(record: &mut Record) {
    record.exposure.samples = 0;
    record.worst.clear();
    for cpu in &mut record.cpus {
        cpu.over_deadline = 0;
        cpu.missed = 0;
        cpu.warm_up_max = None;
        for series in &mut cpu.series {
            series.seen = Distribution::default();
            series.corrected = None;
        }
    }
}
