// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which CPUs of a machine are its real-time CPUs, whoever set it up.

use rampart_model::{CpuSet, IsolationSource, IsolationStrength, Topology};

/// The CPUs that settings of a machine keep for real-time work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RealTimeCpus {
    /// The CPUs.
    pub cpus: CpuSet,
    /// The settings, the strongest first.
    pub sources: Vec<IsolationSource>,
}

impl RealTimeCpus {
    /// Returns the names of the settings, as `from isolcpus=, nohz_full=`.
    #[must_use]
    pub fn words(&self) -> String {
        let mut names: Vec<&str> = Vec::new();
        for source in &self.sources {
            if !names.contains(&source.name.as_str()) {
                names.push(&source.name);
            }
        }
        format!("from {}", names.join(", "))
    }
}

/// Returns the CPUs that a machine's settings keep for real-time work; `None` if no setting keeps
/// any, or every one covers all online CPUs and so makes no choice.
///
/// Sources of the strongest kind present decide together. Weaker ones that keep some of the same
/// CPUs are named too; a mere use of these CPUs is not, unless it decides.
#[must_use]
pub fn real_time_cpus(sources: &[IsolationSource], online: &CpuSet) -> Option<RealTimeCpus> {
    let mut choosing: Vec<IsolationSource> = sources
        .iter()
        .map(|source| IsolationSource {
            cpus: source.cpus.intersection(online),
            ..source.clone()
        })
        .filter(|source| !source.cpus.is_empty() && source.cpus != *online)
        .collect();
    choosing.sort_by_key(|source| source.kind.strength());
    for strength in [
        IsolationStrength::Enforced,
        IsolationStrength::Arranged,
        IsolationStrength::Used,
    ] {
        let cpus = choosing
            .iter()
            .filter(|source| source.kind.strength() == strength)
            .fold(CpuSet::new(), |all, source| all.union(&source.cpus));
        if cpus.is_empty() || cpus == *online {
            continue;
        }
        let names = |source: &IsolationSource| {
            let is_evidence = source.kind.strength() != IsolationStrength::Used
                || strength == IsolationStrength::Used;
            is_evidence && !source.cpus.intersection(&cpus).is_empty()
        };
        choosing.retain(names);
        return Some(RealTimeCpus {
            cpus,
            sources: choosing,
        });
    }
    None
}

/// Returns [`real_time_cpus`] of a machine.
#[must_use]
pub fn real_time_cpus_of(topology: &Topology) -> Option<RealTimeCpus> {
    real_time_cpus(&topology.isolation_sources, &topology.online)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rampart_model::IsolationSourceKind as Kind;

    const ALL: [Kind; 9] = [
        Kind::Unbalanced,
        Kind::Partition,
        Kind::Tickless,
        Kind::KernelList,
        Kind::InheritedAffinity,
        Kind::Slices,
        Kind::Tuned,
        Kind::InterruptAffinity,
        Kind::BoundThreads,
    ];

    fn set(text: &str) -> CpuSet {
        text.parse().expect("CPUs")
    }

    fn source(kind: Kind, cpus: &str) -> IsolationSource {
        IsolationSource {
            kind,
            name: format!("{kind:?}"),
            cpus: set(cpus),
        }
    }

    fn chosen(sources: &[IsolationSource]) -> Option<(String, String)> {
        let found = real_time_cpus(sources, &set("0-7"))?;
        Some((found.cpus.to_string(), found.words()))
    }

    #[test]
    fn each_source_alone_decides() {
        for kind in ALL {
            let words = format!("from {kind:?}");
            assert_eq!(
                chosen(&[source(kind, "6-9")]),
                Some(("6-7".to_owned(), words)),
                "{kind:?}, of which two CPUs are offline"
            );
            assert_eq!(chosen(&[source(kind, "0-7")]), None, "{kind:?} of all CPUs");
            assert_eq!(chosen(&[source(kind, "8")]), None, "{kind:?} offline");
        }
        assert_eq!(chosen(&[]), None);
    }

    #[test]
    fn the_stronger_of_two_sources_decides() {
        for (index, weak) in ALL.into_iter().enumerate() {
            for strong in ALL.into_iter().take(index) {
                let both = [source(weak, "2-7"), source(strong, "5-6")];
                let (cpus, words) = chosen(&both).expect("CPUs");
                let equal = weak.strength() == strong.strength();
                assert_eq!(
                    cpus,
                    if equal { "2-7" } else { "5-6" },
                    "{weak:?} {strong:?}"
                );
                assert!(words.contains(&format!("{strong:?}")), "{words}");
                let is_named = words.contains(&format!("{weak:?}"));
                let is_evidence = equal || weak.strength() != IsolationStrength::Used;
                assert_eq!(is_named, is_evidence, "{words}");
            }
        }
    }

    #[test]
    fn a_source_of_other_cpus_is_not_named() {
        let found = chosen(&[
            source(Kind::Slices, "1"),
            source(Kind::Tickless, "4-5"),
            source(Kind::Unbalanced, "4"),
        ]);
        let words = "from Tickless, Unbalanced".to_owned();
        assert_eq!(found, Some(("4-5".to_owned(), words)));
    }
}
