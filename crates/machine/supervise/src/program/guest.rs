// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A guest. Its emulator is a child process that ends with the supervisor.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use rampart_domain::{GuestEnd, GuestOrder, PlannedGuest, VirtualCpuPlacement};
use rampart_model::{CpuId, CpuSet, Finding, SchedulingPolicy, Severity};

use super::{POLL, Program, ProgramExit, StartRequest};
use crate::SuperviseError;

struct Guest(Option<PlannedGuest>, u32);

pub(super) fn start(
    order: &StartRequest<'_>,
) -> Result<(Box<dyn Program>, Vec<Finding>), SuperviseError> {
    let guest = describe(order)?;
    let (guest, findings) = PlannedGuest::start(guest, order.destination.group.clone())?;
    let process = guest.process();
    Ok((Box::new(Guest(Some(guest), process)), findings))
}

/// Returns the order for the guest of the plan on its resolved CPUs.
fn describe(order: &StartRequest<'_>) -> Result<GuestOrder, SuperviseError> {
    let domain = order.domain;
    let resolved = order.active.plan.resolved.domain(&domain.name);
    let (Some(vcpus), Some(memory), Some(resolved)) = (&domain.vcpus, &domain.memory, resolved)
    else {
        let finding = Finding::new(
            Severity::Error,
            format!("domain {}", domain.name),
            "the guest has no virtual CPUs or no memory",
        );
        return Err(SuperviseError::Missing(finding.fix(
            "write vcpus = { count = 2 } and memory = { size = \"1GiB\" }",
        )));
    };
    let housekeeping = &order.active.plan.resolved.housekeeping;
    let or_housekeeping = |cpus: &CpuSet| {
        if cpus.is_empty() {
            housekeeping.clone()
        } else {
            cpus.clone()
        }
    };
    let request = vcpus.request();
    let path = |text: &Option<String>| text.as_ref().map(PathBuf::from);
    let emulator = or_housekeeping(&resolved.emulator);
    Ok(GuestOrder {
        name: domain.name.clone(),
        kernel: path(&domain.kernel),
        initramfs: path(&domain.initramfs),
        disk: path(&domain.disk),
        memory_bytes: memory.size.0,
        huge_page: memory.hugepage.map(|page| page.0),
        node: memory.node,
        virtual_cpus: (0u32..)
            .zip(&resolved.virtual_cpus)
            .map(|(number, cpu)| {
                let real_time = request
                    .real_time
                    .as_ref()
                    .is_none_or(|real_time| real_time.contains(CpuId(number)));
                let policy = request.policy.map(|policy| policy.0);
                VirtualCpuPlacement {
                    cpus: cpu.map_or_else(|| emulator.clone(), CpuSet::single),
                    policy: policy
                        .filter(|_| real_time)
                        .unwrap_or(SchedulingPolicy::Other),
                }
            })
            .collect(),
        service: or_housekeeping(&resolved.service),
        emulator,
        cpu_pm: domain.cpu_pm,
        hint_dedicated: domain.hint_dedicated,
        devices: domain.devices.clone(),
        directory: order.files.inside(),
        log: order.files.log(),
    })
}

impl From<GuestEnd> for ProgramExit {
    fn from(end: GuestEnd) -> Self {
        Self {
            status: end.status,
            success: end.success,
        }
    }
}

impl Program for Guest {
    fn process(&self) -> Option<u32> {
        Some(self.1)
    }

    fn ended(&mut self) -> Option<ProgramExit> {
        match &mut self.0 {
            Some(guest) => guest.ended().map(ProgramExit::from),
            None => Some(ProgramExit {
                status: "ended".to_owned(),
                success: true,
            }),
        }
    }

    fn place_new_threads(&mut self) -> Vec<Finding> {
        let Some(guest) = &mut self.0 else {
            return Vec::new();
        };
        guest.place_new().unwrap_or_else(|error| {
            vec![Finding::new(
                Severity::Warning,
                format!("process {}", self.1),
                format!("a new thread is not placed: {error}"),
            )]
        })
    }

    fn stop(&mut self, limit: Duration) -> ProgramExit {
        let Some(mut guest) = self.0.take() else {
            return ProgramExit {
                status: "ended".to_owned(),
                success: true,
            };
        };
        let begin = Instant::now();
        guest.power_down();
        while begin.elapsed() < limit {
            if let Some(ended) = guest.ended() {
                guest.end();
                return ended.into();
            }
            std::thread::sleep(POLL);
        }
        guest.end();
        ProgramExit {
            status: format!(
                "ended by its monitor, because it did not power off within {} s",
                limit.as_secs_f64()
            ),
            success: false,
        }
    }
}
