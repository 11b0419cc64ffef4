// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs a meter in a domain of the active plan, without changing its isolation.

use rampart_host::{PlacementGroup, ThreadPlacement};
use rampart_model::{ActiveDomain, Availability, DomainSelection, Machine};

use crate::running_process::RunningProcess;
use crate::{Domain, DomainError, Running, Start};

/// A domain of an applied plan, in which a meter runs.
#[derive(Debug, Clone)]
pub(crate) struct DomainOfActivePlan(pub(crate) ActiveDomain);

impl Domain for DomainOfActivePlan {
    fn selection(&self) -> DomainSelection {
        DomainSelection::of(self.0.kind)
    }

    fn availability(&self, _machine: &Machine) -> Availability {
        Availability {
            domain: self.selection(),
            available: true,
            description: format!(
                "a process in `{}`, whose isolation is in effect",
                self.0.name
            ),
            findings: Vec::new(),
        }
    }

    fn start(&self, start: &Start<'_>) -> Result<Box<dyn Running>, DomainError> {
        let location = ThreadPlacement {
            group: PlacementGroup::of(&self.0),
            cpus: None,
            policy: None,
            nice: None,
        };
        RunningProcess::bare(start, |process| {
            rampart_host::place_process(process, &location)?;
            Ok(())
        })
    }
}
