// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests the parsers with real outputs of the tools.

use rampart_model::{Bucket, CpuId, Nanos, Severity};
use rampart_peers::{
    PeerError, PeerMeasurement, PeerQuantile, PeerSeries, read_cyclictest, read_rtla,
};

macro_rules! fixture {
    ($name:literal) => {
        include_str!(concat!("../../../../tests/fixtures/", $name))
    };
}

fn rtla(text: &str) -> PeerMeasurement {
    let measurement = read_rtla(text).expect("valid output");
    let problems: Vec<_> = measurement
        .findings
        .iter()
        .filter(|finding| finding.severity != Severity::Note)
        .collect();
    assert!(problems.is_empty(), "{problems:?}");
    measurement
}

/// Returns name, number, samples in the buckets, samples beyond, and minimum, mean and maximum in
/// microseconds.
fn summary(series: &PeerSeries) -> (&str, u32, u64, Option<u64>, [Option<u64>; 3]) {
    let micros = |value: Option<Nanos>| value.map(|value| value.0 / 1_000);
    (
        &series.name,
        series.number.0,
        series.seen.samples,
        series.beyond,
        [micros(series.min), micros(series.mean), micros(series.max)],
    )
}

#[test]
fn reads_timerlat_with_samples_beyond_the_buckets() {
    let read = rtla(fixture!("rtla/timerlat-hist.txt"));
    assert_eq!(read.tool, "rtla timerlat hist");
    assert_eq!(read.duration, Some(Nanos::from_secs(6)));
    assert_eq!(read.bucket, Nanos::from_micros(1));
    let [interrupt, thread] = read.series.as_slice() else {
        panic!("{read:?}");
    };
    assert_eq!(
        summary(interrupt),
        (
            "IRQ",
            1,
            5_445,
            Some(547),
            [Some(19), Some(115), Some(2_717)]
        )
    );
    assert_eq!(
        summary(thread),
        (
            "Thr",
            1,
            5_115,
            Some(877),
            [Some(47), Some(182), Some(2_898)]
        )
    );
    assert_eq!(interrupt.samples(), 5_992);
    // Nine of a hundred samples are beyond, so the buckets contain no p99.
    let end = Nanos::from_micros(256);
    assert_eq!(interrupt.quantile(0.99), Some(PeerQuantile::Beyond(end)));
    let Some(PeerQuantile::AtMost(median)) = interrupt.quantile(0.5) else {
        panic!("{interrupt:?}");
    };
    // Within the microsecond in which the rows reach half of the count.
    let mut counted = 0;
    let row = fixture!("rtla/timerlat-hist.txt")
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace().map(str::parse::<u64>);
            Some((words.next()?.ok()?, words.next()?.ok()?))
        })
        .find(|(_, count)| {
            counted += count;
            counted >= 5_992 / 2
        })
        .expect("the median's row")
        .0;
    let above = Bucket::highest(Nanos::from_micros(row + 1));
    assert!(
        median >= Nanos::from_micros(row) && median <= above,
        "{median:?} {row}"
    );
}

#[test]
fn reads_timerlat_of_two_cpus_and_wide_buckets() {
    let read = rtla(fixture!("rtla/timerlat-hist-b50-two-cpus.txt"));
    assert_eq!(read.bucket, Nanos::from_micros(50));
    let all: Vec<_> = read.series.iter().map(summary).collect();
    assert_eq!(
        all,
        [
            ("IRQ", 0, 5_982, Some(0), [Some(23), Some(70), Some(5_847)]),
            ("Thr", 0, 5_982, Some(0), [Some(46), Some(111), Some(6_082)]),
            ("IRQ", 1, 5_984, Some(0), [Some(27), Some(75), Some(5_867)]),
            ("Thr", 1, 5_984, Some(0), [Some(46), Some(119), Some(5_948)]),
        ]
    );
    // The maximum is the tool's own, not the upper edge of the last bucket.
    assert_eq!(
        read.series[1].quantile(1.0),
        Some(PeerQuantile::AtMost(Nanos::from_micros(6_082)))
    );
}

#[test]
fn reads_timerlat_in_nanoseconds() {
    let read = rtla(fixture!("rtla/timerlat-hist-nano.txt"));
    assert_eq!(read.bucket, Nanos::from_micros(1));
    let interrupt = &read.series[0];
    assert_eq!(
        (interrupt.min, interrupt.max),
        (Some(Nanos(4_827)), Some(Nanos(3_996_678)))
    );
    assert_eq!((interrupt.seen.samples, interrupt.beyond), (5_989, Some(0)));
    assert_eq!(interrupt.seen.min, Some(Nanos(4_000)));
}

#[test]
fn reads_timerlat_of_threads_only_with_rows_of_zeros() {
    let read = rtla(fixture!("rtla/timerlat-hist-thread-only-zeros.txt"));
    let [thread] = read.series.as_slice() else {
        panic!("{read:?}");
    };
    assert_eq!(
        summary(thread),
        (
            "Thr",
            1,
            5_877,
            Some(1),
            [Some(33), Some(164), Some(11_437)]
        )
    );
    // The last row marks the end of the buckets, although it is empty.
    assert_eq!(thread.buckets_end, Nanos::from_millis(10));
    assert_eq!(
        thread.quantile(1.0),
        Some(PeerQuantile::Beyond(Nanos::from_millis(10)))
    );
}

#[test]
fn reads_osnoise() {
    let read = rtla(fixture!("rtla/osnoise-hist.txt"));
    assert_eq!(read.tool, "rtla osnoise hist");
    assert_eq!(
        summary(&read.series[0]),
        (
            "CPU",
            1,
            12_155,
            Some(964),
            [Some(5), Some(144), Some(14_152)]
        )
    );
    assert!(
        read.findings
            .iter()
            .any(|finding| finding.what.contains("lower edges"))
    );
    let two = rtla(fixture!("rtla/osnoise-hist-b20-two-cpus.txt"));
    let numbers: Vec<CpuId> = two.series.iter().map(|series| series.number).collect();
    assert_eq!(numbers, [CpuId(0), CpuId(1)]);
    assert_eq!(two.series[1].samples(), 9_976);
}

#[test]
fn explains_osnoise_without_samples() {
    let read = read_rtla(fixture!("rtla/osnoise-hist-empty.txt")).expect("valid output");
    assert!(read.series.is_empty());
    assert!(
        read.findings
            .iter()
            .any(|finding| finding.what.contains("no column"))
    );
}

#[test]
fn ignores_additions_of_later_versions_and_reports_a_threshold() {
    let text = "# RTLA timerlat histogram\n# Time unit is microseconds (us)\n# Duration:   1 02:03:04\n\
        Index   IRQ-002   Thr-002   Usr-002\n5 1 0 0\n6 0 1 1\nover:  0 0 0\ncount: 1 1 1\n\
        min:   5 - 6\navg:   5 6 6\nmax:   5 6 6\nALL:        IRQ       Thr       Usr\ncount: 9 9 9\n\
        rtla timerlat hit stop tracing\n";
    let read = read_rtla(text).expect("valid output");
    assert_eq!(read.duration, Some(Nanos::from_secs(93_784)));
    let counts: Vec<u64> = read.series.iter().map(PeerSeries::samples).collect();
    assert_eq!(counts, [1, 1, 1]);
    assert_eq!(read.series[1].min, None);
    assert_eq!(read.findings.len(), 1);
    assert!(
        read.findings[0].what.contains("threshold"),
        "{:?}",
        read.findings
    );
}

#[test]
fn reports_inconsistent_counts_and_rows() {
    let text = fixture!("rtla/timerlat-hist.txt");
    let read =
        read_rtla(&text.replace("over:       547", "over:       546")).expect("valid output");
    assert!(
        read.findings
            .iter()
            .any(|finding| finding.what.contains("do not add up"))
    );
    let without = text
        .lines()
        .filter(|line| !line.starts_with("over:"))
        .collect::<Vec<_>>();
    let read = read_rtla(&without.join("\n")).expect("valid output");
    assert_eq!(read.series[0].beyond, None);
    assert!(
        read.findings
            .iter()
            .any(|finding| finding.what.contains("is not reported"))
    );
    assert!(matches!(
        read_rtla("T: 0 ( 1) P:80"),
        Err(PeerError::NotThisTool { .. })
    ));
    let broken = text.replace("20            1         0", "20            1");
    assert!(matches!(
        read_rtla(&broken),
        Err(PeerError::Line { line: 6, .. })
    ));
}

#[test]
fn reads_cyclictest_by_thread() {
    for (text, with_sum) in [
        (fixture!("cyclictest/h-two-threads.txt"), false),
        (fixture!("cyclictest/H-two-threads.txt"), true),
    ] {
        let read = read_cyclictest(text, false).expect("valid output");
        assert_eq!(read.bucket, Nanos::from_micros(1));
        assert_eq!(read.series.len(), 2, "with sum: {with_sum}");
        let figures = |name: &str| -> Vec<u64> {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.expect(name)
                .split_whitespace()
                .map(|word| word.parse().expect(word))
                .collect()
        };
        let (total, beyond) = (figures("# Total:"), figures("# Histogram Overflows:"));
        let max = figures("# Max Latencies:");
        for (index, series) in read.series.iter().enumerate() {
            assert_eq!(series.seen.samples, total[index]);
            assert_eq!(series.beyond, Some(beyond[index]));
            assert_eq!(series.max, Some(Nanos::from_micros(max[index])));
            assert_eq!(series.buckets_end, Nanos::from_micros(60));
        }
    }
    let nanos =
        read_cyclictest(fixture!("cyclictest/h-nanoseconds.txt"), true).expect("valid output");
    let series = &nanos.series[0];
    assert_eq!(series.samples(), 500);
    assert!(series.min >= series.seen.min && series.min < Some(Nanos::from_millis(10)));
    assert!(read_cyclictest("# Histogram\n", false).is_err());
    assert!(read_cyclictest("# Histogram\n0 1 2\n1 1\n", false).is_err());
}

/// Since rt-tests 2.7 rows of zeros are left out; a bucket is still one unit wide.
#[test]
fn cyclictest_buckets_are_one_unit_wide() {
    let text = "# Histogram\n000010 000005\n000040 000005\n# Min Latencies: 00010\n\
        # Avg Latencies: 00025\n# Max Latencies: 00040\n# Histogram Overflows: 00000\n";
    let read = read_cyclictest(text, false).expect("valid output");
    assert_eq!(read.bucket, Nanos::from_micros(1));
    assert_eq!(read.series[0].seen.max, Some(Nanos(40_999)));
    assert_eq!(
        read.series[0].quantile(0.99),
        Some(PeerQuantile::AtMost(Nanos::from_micros(40)))
    );
}

/// Returns whether a warning reports an incomplete text.
fn is_incomplete(read: &PeerMeasurement) -> bool {
    read.findings.iter().any(|finding| {
        finding.severity == Severity::Warning && finding.what.contains("may be missing")
    })
}

#[test]
fn reports_an_rtla_text_cut_at_any_byte() {
    for text in [
        fixture!("rtla/osnoise-hist.txt"),
        fixture!("rtla/osnoise-hist-empty.txt"),
        fixture!("rtla/timerlat-hist-b50-two-cpus.txt"),
        fixture!("rtla/timerlat-hist-nano.txt"),
        fixture!("rtla/timerlat-hist-thread-only-zeros.txt"),
    ] {
        assert!(!is_incomplete(&read_rtla(text).expect("valid output")));
        for end in 0..text.len() {
            if let Ok(read) = read_rtla(&text[..end]) {
                assert!(is_incomplete(&read), "cut at {end} of {}", text.len());
            }
        }
    }
    let read = read_rtla(fixture!("rtla/osnoise-hist-cut-in-over.txt")).expect("valid output");
    assert!(is_incomplete(&read), "{read:?}");
    let read = read_rtla(fixture!("rtla/timerlat-hist-cut-in-max.txt")).expect("valid output");
    assert!(is_incomplete(&read), "{read:?}");
}

/// Returns whether a note reports that the width of the buckets is not known.
fn has_unknown_width(read: &PeerMeasurement) -> bool {
    read.findings.iter().any(|finding| {
        finding.severity == Severity::Note && finding.what.contains("width of its buckets")
    })
}

#[test]
fn reports_a_width_that_the_rows_do_not_define() {
    let read = rtla(fixture!("rtla/osnoise-hist-two-rows.txt"));
    // Every width that fits the rows divides this one, so that no quantile is too short.
    assert_eq!(read.bucket, Nanos::from_micros(10));
    assert!(has_unknown_width(&read), "{:?}", read.findings);
    assert!(has_unknown_width(&rtla(fixture!(
        "rtla/osnoise-hist-b20-two-cpus.txt"
    ))));
    for defined in [
        // Adjacent edges, extremes far above the edge of their bucket, rows of zeros.
        fixture!("rtla/osnoise-hist.txt"),
        fixture!("rtla/timerlat-hist-b50-two-cpus.txt"),
        fixture!("rtla/timerlat-hist-nano.txt"),
        fixture!("rtla/timerlat-hist-thread-only-zeros.txt"),
    ] {
        let read = rtla(defined);
        assert!(!has_unknown_width(&read), "{:?}", read.findings);
    }
}

#[test]
fn refuses_the_outputs_of_two_runs() {
    assert!(matches!(
        read_cyclictest(fixture!("cyclictest/two-runs.txt"), false),
        Err(PeerError::Line { what, .. }) if what.contains("one run")
    ));
    let twice = fixture!("rtla/osnoise-hist.txt").repeat(2);
    assert!(matches!(
        read_rtla(&twice),
        Err(PeerError::NotThisTool { fix, .. }) if fix.contains("one run")
    ));
}

#[test]
fn reports_cyclictest_rows_that_differ_from_their_total() {
    let differs = |text: &str| -> Vec<String> {
        let read = read_cyclictest(text, false).expect("valid output");
        let mut findings = read.findings;
        findings.retain(|finding| finding.what.contains("do not add up to the total"));
        findings
            .into_iter()
            .map(|finding| finding.location)
            .collect()
    };
    assert_eq!(
        differs(fixture!("cyclictest/row-lost.txt")),
        ["T-000", "T-001"]
    );
    for whole in [
        fixture!("cyclictest/h-two-threads.txt"),
        fixture!("cyclictest/H-two-threads.txt"),
        fixture!("cyclictest/h-nanoseconds.txt"),
    ] {
        assert!(differs(whole).is_empty());
    }
}

#[test]
fn reports_a_cyclictest_text_cut_at_any_byte() {
    for text in [
        fixture!("cyclictest/h-two-threads.txt"),
        fixture!("cyclictest/H-two-threads.txt"),
        fixture!("cyclictest/h-nanoseconds.txt"),
    ] {
        let whole = read_cyclictest(text, true).expect("valid output");
        assert!(!is_incomplete(&whole));
        for end in 0..text.len() {
            let Ok(read) = read_cyclictest(&text[..end], true) else {
                continue;
            };
            assert!(
                is_incomplete(&read) || read.series == whole.series,
                "cut at {end} of {}",
                text.len()
            );
            // With -H, the sum of the threads must never pass for a thread without a warning, nor
            // a thread for the sum.
            if read.series.len() < whole.series.len() {
                assert!(is_incomplete(&read));
            }
        }
    }
}

#[test]
fn reports_microseconds_that_are_probably_nanoseconds() {
    let read =
        read_cyclictest(fixture!("cyclictest/h-nanoseconds.txt"), false).expect("valid output");
    let warning = read.findings.iter().find(|finding| {
        finding.severity == Severity::Warning && finding.what.contains("microseconds")
    });
    assert!(warning.is_some_and(|warning| warning.fix.is_some()));
    let read =
        read_cyclictest(fixture!("cyclictest/h-two-threads.txt"), false).expect("valid output");
    assert!(
        read.findings
            .iter()
            .all(|finding| finding.severity == Severity::Note)
    );
    assert!(
        read.findings
            .iter()
            .any(|finding| finding.what.contains("unit"))
    );
}

/// The width of a bucket is searched for among the divisors of its edges, here of a large prime.
#[test]
fn an_absurd_width_ends_the_search() {
    let text = "# RTLA osnoise histogram\n# Time unit is nanoseconds (ns)\nIndex CPU-001\n\
                0 1\n18446744073709551557 1\n";
    assert!(read_rtla(text).is_ok());
}

proptest::proptest! {
    #[test]
    fn accepts_or_rejects_any_text(text in ".{0,200}", rows in "([0-9]{1,20} {0,2}){0,8}\n?") {
        let header = "# RTLA osnoise histogram\n# Time unit is nanoseconds (ns)\nIndex CPU-001\n";
        let _ = read_rtla(&text);
        let _ = read_rtla(&format!("{header}{rows}{text}"));
        let _ = read_cyclictest(&format!("# Histogram\n{rows}{text}"), true);
    }
}
