// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The histograms of latencies, for the page.

use std::collections::HashMap;

use rampart_model::{Condition, CpuRecord, Distribution, MeterKind, Record, Series};

use super::Report;
use crate::charts::{Buckets, Curve, Facet, Grouping, LatencyChart, LatencyView};
use crate::element::Element;
use crate::format;

/// Returns the key of a view, which tables refer to.
pub(super) fn key(meter: MeterKind, series: Series, corrected: bool) -> String {
    let how = if corrected { "corrected" } else { "seen" };
    format!("{meter}/{}/{how}", series.word())
}

/// Returns whether adding missed periods changes a quantity.
pub(super) fn has_corrected(report: &Report<'_>, meter: MeterKind, series: Series) -> bool {
    let records = report.evaluation.records.iter();
    records
        .filter(|record| record.settings.meter == meter)
        .flat_map(|record| &record.cpus)
        .flat_map(|cpu| &cpu.series)
        .any(|of| of.series == series && of.corrected.is_some())
}

/// Returns one CPU's distribution of a series.
pub(super) fn of_cpu(cpu: &CpuRecord, series: Series, corrected: bool) -> Option<&Distribution> {
    let found = cpu.series.iter().find(|of| of.series == series)?;
    let seen = &found.seen;
    Some(match &found.corrected {
        Some(corrections) if corrected => corrections,
        _ => seen,
    })
}

/// Returns a record's distribution of a series over all its CPUs.
pub(super) fn of_record(record: &Record, series: Series, corrected: bool) -> Distribution {
    let mut all = Distribution::default();
    for of in record
        .cpus
        .iter()
        .filter_map(|cpu| of_cpu(cpu, series, corrected))
    {
        all.merge(of);
    }
    all
}

/// The chart, which only the page has.
pub(super) fn latency(report: &Report<'_>) -> Vec<Element> {
    let mut elements = vec![Element::section("latency", "Latency", "Latency")];
    if report.quantities.is_empty() {
        elements.push(Element::paragraph("Nothing was measured."));
        return vec![Element::detail(elements)];
    }
    let mut builder = Builder {
        report,
        chart: LatencyChart::default(),
        known: HashMap::new(),
    };
    for (meter, series) in &report.quantities {
        builder.view(*meter, *series, false);
        if has_corrected(report, *meter, *series) {
            builder.view(*meter, *series, true);
        }
    }
    elements.push(Element::Latency(builder.chart));
    vec![Element::detail(elements)]
}

struct Builder<'r, 'a> {
    report: &'r Report<'a>,
    chart: LatencyChart,
    /// Number of the distribution of a record, CPU and series, as seen or corrected.
    known: HashMap<(&'a str, u32, Series, bool), usize>,
}

impl<'a> Builder<'_, 'a> {
    fn view(&mut self, meter: MeterKind, series: Series, corrected: bool) {
        let evaluation = self.report.evaluation;
        let first = evaluation
            .records
            .iter()
            .find(|record| record.settings.meter == meter);
        let compared = matches!(series, Series::Lateness | Series::Response);
        let deadline = first.and_then(|record| record.settings.deadline);
        let deadline = compared.then(|| deadline.unwrap_or(evaluation.settings.deadline));
        let emulated = self
            .report
            .domains
            .iter()
            .filter(|name| self.report.is_emulated(name));
        let emulated: Vec<&str> = emulated.copied().collect();
        let mut note = deadline.map_or_else(
            || "This quantity has no deadline.".to_owned(),
            |deadline| format!("Deadline {}.", format::time(deadline)),
        );
        if !emulated.is_empty() {
            note.push_str(&format!(
                " Emulated, so that these times are not meaningful: {}.",
                emulated.join(", ")
            ));
        }
        let conditions = self.report.conditions.clone();
        let curve_of = |of: &mut Self, record: &'a Record, label: String| {
            of.curve(
                label,
                record,
                &record.cpus.iter().collect::<Vec<_>>(),
                series,
                corrected,
            )
        };
        let mut by_domain = Vec::new();
        let mut by_cpu = Vec::new();
        for condition in &conditions {
            let records = self.report.records(meter, *condition);
            let curves = records
                .iter()
                .map(|record| curve_of(self, record, record.domain.clone()));
            by_domain.push(facet(*condition, curves.collect()));
            let mut curves = Vec::new();
            for record in records {
                for cpu in &record.cpus {
                    let label = format!("{} CPU {}", record.domain, cpu.cpu);
                    curves.push(self.curve(label, record, &[cpu], series, corrected));
                }
            }
            by_cpu.push(facet(*condition, curves));
        }
        let mut by_condition = Vec::new();
        for domain in self.report.domains.clone() {
            let mut curves = Vec::new();
            for condition in &conditions {
                for record in self.report.records(meter, *condition) {
                    if record.domain == domain {
                        curves.push(curve_of(self, record, condition.to_string()));
                    }
                }
            }
            by_condition.push(Facet {
                name: domain.to_owned(),
                curves,
            });
        }
        let grouping = |name, facet, facets| Grouping {
            name,
            facet,
            by_condition: facet == "Condition",
            facets,
        };
        let mut groupings = vec![grouping("domain", "Condition", by_domain)];
        if evaluation
            .records
            .iter()
            .any(|record| record.cpus.len() > 1)
        {
            groupings.push(grouping("CPU", "Condition", by_cpu));
        }
        if conditions.len() > 1 {
            groupings.push(grouping("condition", "Domain", by_condition));
        }
        self.chart.views.push(LatencyView {
            key: key(meter, series, corrected),
            quantity: format!("{meter}: {}", format::series_words(series)),
            series: format::series_words(series).to_owned(),
            corrected,
            deadline: deadline.map(|deadline| deadline.0),
            deadline_label: deadline.map_or_else(String::new, |deadline| {
                format!("deadline {}", format::time(deadline))
            }),
            note,
            groupings,
        });
    }

    fn curve(
        &mut self,
        label: String,
        record: &'a Record,
        cpus: &[&'a CpuRecord],
        series: Series,
        corrected: bool,
    ) -> Curve {
        let mut parts = Vec::new();
        let (mut samples, mut max) = (0, None);
        for cpu in cpus {
            let Some(of) = of_cpu(cpu, series, corrected) else {
                continue;
            };
            samples += of.samples;
            max = max.max(of.max);
            let key = (record.id.as_str(), cpu.cpu.0, series, corrected);
            let next = self.chart.distributions.len();
            let number = *self.known.entry(key).or_insert(next);
            if number == next {
                self.chart.distributions.push(Buckets {
                    samples: of.samples,
                    min: of.min.map(|min| min.0),
                    max: of.max.map(|max| max.0),
                    buckets: of
                        .buckets
                        .iter()
                        .map(|bucket| (bucket.0.0, bucket.1))
                        .collect(),
                });
            }
            parts.push(number);
        }
        Curve {
            label,
            parts,
            max: max.map(|max| max.0),
            max_text: format::time_or_dash(max),
            samples_text: format!("{} samples", format::count(samples)),
        }
    }
}

fn facet(condition: Condition, curves: Vec<Curve>) -> Facet {
    Facet {
        name: condition.to_string(),
        curves,
    }
}
