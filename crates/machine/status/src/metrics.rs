// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A status as OpenMetrics text (OpenMetrics 1.0), and as the older text of Prometheus (exposition
//! format 0.0.4).

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use rampart_model::{Bucket, CpuStatus, Distribution, Nanos, Status, StatusSubject};
use rampart_rules::STATE_RULES;

use crate::{Latencies, Totals};

/// Content type of [`open_metrics`].
pub const OPEN_METRICS_CONTENT_TYPE: &str =
    "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Content type of [`classic`].
pub const CLASSIC_CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Upper bounds of the latency histogram: from 1 µs to 100 ms in steps of 1, 2 and 5.
const BOUNDS: [Nanos; 16] = [
    Nanos::from_micros(1),
    Nanos::from_micros(2),
    Nanos::from_micros(5),
    Nanos::from_micros(10),
    Nanos::from_micros(20),
    Nanos::from_micros(50),
    Nanos::from_micros(100),
    Nanos::from_micros(200),
    Nanos::from_micros(500),
    Nanos::from_millis(1),
    Nanos::from_millis(2),
    Nanos::from_millis(5),
    Nanos::from_millis(10),
    Nanos::from_millis(20),
    Nanos::from_millis(50),
    Nanos::from_millis(100),
];

type Labels = Vec<(&'static str, String)>;

/// Renders a status. `latencies` is empty if no meter runs.
#[must_use]
pub fn open_metrics(status: &Status, totals: &Totals, latencies: &Latencies) -> String {
    encode(Box::new(Figures {
        status: status.clone(),
        totals: totals.clone(),
        latencies: latencies.clone(),
    }))
}

/// Renders one status without a server that counts from its start on. Every metric is a gauge, so
/// the text is valid OpenMetrics and valid in the older format too, the only one that the textfile
/// collector of node_exporter reads.
#[must_use]
pub fn open_metrics_once(status: &Status) -> String {
    encode(Box::new(FiguresOnce(Figures {
        status: status.clone(),
        totals: Totals::default(),
        latencies: Latencies::default(),
    })))
}

fn encode(collector: Box<dyn Collector>) -> String {
    let mut registry = Registry::with_prefix("rampart");
    registry.register_collector(collector);
    let mut text = String::new();
    // Writing to a string never fails.
    let _ = prometheus_client::encoding::text::encode(&mut text, &registry);
    text
}

#[derive(Debug)]
struct Figures {
    status: Status,
    totals: Totals,
    latencies: Latencies,
}

impl Collector for Figures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        self.plan_is_active(&mut encoder)?;
        if let Some(labels) = self.plan_labels() {
            encoder
                .encode_descriptor("plan", PLAN_HELP, None, MetricType::Info)?
                .encode_info(&labels)?;
        }
        self.cpus(&mut encoder)?;
        self.counts(&mut encoder)?;
        self.domains(&mut encoder)?;
        counters(
            &mut encoder,
            "domain_restarts",
            RESTARTS_HELP,
            self.restarts(),
        )?;
        self.findings(&mut encoder)?;
        self.latency(&mut encoder)
    }
}

/// The figures of one status, all as gauges.
#[derive(Debug)]
struct FiguresOnce(Figures);

impl Collector for FiguresOnce {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let figures = &self.0;
        figures.plan_is_active(&mut encoder)?;
        let plan = figures.plan_labels().map(|labels| (labels, 1.0));
        gauges(&mut encoder, "plan_info", PLAN_HELP, plan)?;
        figures.cpus(&mut encoder)?;
        self.rates(&mut encoder)?;
        figures.domains(&mut encoder)?;
        let restarts = figures
            .restarts()
            .map(|(labels, count)| (labels, count as f64));
        gauges(&mut encoder, "domain_restarts", RESTARTS_HELP, restarts)?;
        figures.findings(&mut encoder)
    }
}

impl FiguresOnce {
    fn rates(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let status = &self.0.status;
        gauges(
            encoder,
            "observation_seconds",
            "Time that the machine was observed",
            [(Vec::new(), status.interval.as_secs_f64())],
        )?;
        let by_cpu = |rate: fn(&CpuStatus) -> f64| {
            status
                .cpus
                .iter()
                .map(move |cpu| (vec![("cpu", cpu.cpu.to_string())], rate(cpu)))
        };
        gauges(
            encoder,
            "cpu_interrupts_per_second",
            "Interrupts per second within the observation",
            by_cpu(|cpu| cpu.interrupts_per_second),
        )?;
        gauges(
            encoder,
            "cpu_softirqs_per_second",
            "Softirqs per second within the observation",
            by_cpu(|cpu| cpu.softirqs_per_second),
        )?;
        let mut counted = Totals::default();
        counted.add(status);
        gauges(
            encoder,
            "unwanted_activity",
            "Activity on a real-time CPU that does not belong to its domain, within the observation",
            counted
                .unwanted_activity
                .iter()
                .map(|((cpu, kind), count)| {
                    let labels = vec![("cpu", cpu.to_string()), ("kind", kind.word().to_owned())];
                    (labels, *count as f64)
                }),
        )
    }
}

const PLAN_HELP: &str = "The active plan";
const RESTARTS_HELP: &str = "Restarts of a domain's program";

fn gauges(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    values: impl IntoIterator<Item = (Labels, f64)>,
) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (labels, value) in values {
        if labels.is_empty() {
            metric.encode_gauge(&value)?;
        } else {
            metric.encode_family(&labels)?.encode_gauge(&value)?;
        }
    }
    Ok(())
}

fn counters(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    values: impl IntoIterator<Item = (Labels, u64)>,
) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (labels, value) in values {
        metric
            .encode_family(&labels)?
            .encode_counter::<NoLabelSet, _, f64>(&value, None)?;
    }
    Ok(())
}

impl Figures {
    fn plan_is_active(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let is_active = if self.status.plan.is_some() { 1.0 } else { 0.0 };
        gauges(
            encoder,
            "plan_is_active",
            "Whether a plan is applied to this machine",
            [(Vec::new(), is_active)],
        )
    }

    fn plan_labels(&self) -> Option<Labels> {
        let plan = self.status.plan.as_ref()?;
        Some(vec![
            ("file", plan.file.clone()),
            ("state", plan.state.word().to_owned()),
            ("fingerprint", plan.fingerprint.clone()),
            ("housekeeping", plan.housekeeping.to_string()),
            ("real_time", plan.real_time.to_string()),
            ("tool_version", self.status.tool_version.clone()),
        ])
    }

    fn cpus(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let cpus = &self.status.cpus;
        gauges(
            encoder,
            "cpu_owner",
            "Owner and role of a CPU, always 1",
            cpus.iter().filter_map(|cpu| {
                let labels = vec![
                    ("cpu", cpu.cpu.to_string()),
                    ("owner", cpu.owner.clone().unwrap_or_default()),
                    ("role", cpu.role?.to_string()),
                ];
                Some((labels, 1.0))
            }),
        )?;
        let flag = |value: bool| if value { 1.0 } else { 0.0 };
        gauges(
            encoder,
            "cpu_online",
            "Whether a CPU is online",
            cpus.iter()
                .map(|cpu| (vec![("cpu", cpu.cpu.to_string())], flag(cpu.online))),
        )?;
        gauges(
            encoder,
            "cpu_busy_ratio",
            "Part of the observed time that a CPU was not idle",
            cpus.iter()
                .map(|cpu| (vec![("cpu", cpu.cpu.to_string())], cpu.busy)),
        )
    }

    fn counts(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let by_cpu = |counts: &std::collections::BTreeMap<_, u64>| {
            counts
                .iter()
                .map(|(cpu, count): (&rampart_model::CpuId, &u64)| {
                    (vec![("cpu", cpu.to_string())], *count)
                })
                .collect::<Vec<(Labels, u64)>>()
        };
        counters(
            encoder,
            "cpu_interrupts",
            "Interrupts since this server started",
            by_cpu(&self.totals.interrupts),
        )?;
        counters(
            encoder,
            "cpu_softirqs",
            "Softirqs since this server started",
            by_cpu(&self.totals.softirqs),
        )?;
        let unwanted_activity = self
            .totals
            .unwanted_activity
            .iter()
            .map(|((cpu, kind), count)| {
                let labels = vec![("cpu", cpu.to_string()), ("kind", kind.word().to_owned())];
                (labels, *count)
            });
        counters(
            encoder,
            "unwanted_activity",
            "Activity on a real-time CPU that does not belong to its domain, since this server started",
            unwanted_activity,
        )
    }

    fn domains(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let domains = &self.status.domains;
        let flag = |value: bool| if value { 1.0 } else { 0.0 };
        gauges(
            encoder,
            "domain_isolation_valid",
            "Whether the isolation of a domain is as it was when the plan was applied",
            domains.iter().map(|domain| {
                let labels = vec![
                    ("domain", domain.name.clone()),
                    ("kind", domain.kind.to_string()),
                    ("isolation", domain.isolation.to_string()),
                ];
                (labels, flag(domain.isolation_valid))
            }),
        )?;
        let named = |name: &str| vec![("domain", name.to_owned())];
        gauges(
            encoder,
            "domain_up",
            "Whether a domain's program runs",
            domains
                .iter()
                .map(|domain| (named(&domain.name), flag(domain.is_up()))),
        )
    }

    fn restarts(&self) -> impl Iterator<Item = (Labels, u64)> {
        self.status.domains.iter().filter_map(|domain| {
            let program = domain.program.as_ref()?;
            Some((vec![("domain", domain.name.clone())], program.restarts))
        })
    }

    fn findings(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        // Every rule is exported, so that an alert can refer to a count of 0.
        let counted = |subject: StatusSubject| {
            STATE_RULES
                .iter()
                .filter(move |rule| rule.subject == subject)
                .map(|rule| rule.rule.id)
                .map(|id| {
                    let count = self
                        .status
                        .findings
                        .iter()
                        .filter(|finding| finding.rule() == id)
                        .count();
                    (vec![("rule", id.to_owned())], count as f64)
                })
                .collect::<Vec<(Labels, f64)>>()
        };
        gauges(
            encoder,
            "drift",
            "Findings of drift from the plan, by rule",
            counted(StatusSubject::Drift),
        )?;
        gauges(
            encoder,
            "colocations",
            "Findings of colocations that cause latency, by rule",
            counted(StatusSubject::Colocation),
        )
    }

    fn latency(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        if self.latencies.iter().next().is_none() {
            return Ok(());
        }
        let unit = Unit::Seconds;
        let mut metric = encoder.encode_descriptor(
            "wakeup_latency",
            "Wakeup latency of the meter's threads, since this server started",
            Some(&unit),
            MetricType::Histogram,
        )?;
        for (cpu, latency) in self.latencies.iter() {
            let labels: Labels = vec![("cpu", cpu.to_string())];
            Histogram(&latency.all).encode(metric.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

/// A distribution in the buckets of [`BOUNDS`].
#[derive(Debug)]
struct Histogram<'a>(&'a Distribution);

impl EncodeMetric for Histogram<'_> {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        let seconds = |nanos: Nanos| nanos.as_secs_f64();
        let mut buckets: Vec<(f64, u64)> =
            BOUNDS.iter().map(|bound| (seconds(*bound), 0)).collect();
        buckets.push((f64::INFINITY, 0));
        for Bucket(lowest, count) in &self.0.buckets {
            // Compare the upper edge, so that no sample counts as faster than it was.
            let location = BOUNDS
                .iter()
                .position(|bound| Bucket::highest(*lowest) <= *bound)
                .unwrap_or(BOUNDS.len());
            if let Some(bucket) = buckets.get_mut(location) {
                bucket.1 += count;
            }
        }
        let mean = self.0.mean().unwrap_or_default();
        let sum = seconds(mean) * self.0.samples as f64;
        encoder.encode_histogram::<NoLabelSet>(sum, self.0.samples, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

/// Converts OpenMetrics text to exposition format 0.0.4: the descriptions of counters have the suffix
/// `_total` too, an info is a gauge, and lines with units and the end are removed.
#[must_use]
pub fn classic(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len());
    let mut help: Option<&str> = None;
    for line in open_metrics.lines() {
        if let Some(described) = line.strip_prefix("# HELP ") {
            help = Some(described);
        } else if let Some((name, kind)) = line
            .strip_prefix("# TYPE ")
            .and_then(|described| described.split_once(' '))
        {
            let (suffix, kind) = match kind {
                "counter" => ("_total", kind),
                "info" => ("_info", "gauge"),
                _ => ("", kind),
            };
            let words = help
                .take()
                .and_then(|described| described.strip_prefix(name));
            text.push_str(&format!(
                "# HELP {name}{suffix}{}\n",
                words.unwrap_or_default()
            ));
            text.push_str(&format!("# TYPE {name}{suffix} {kind}\n"));
        } else if !line.starts_with("# ") {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}
