// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measures wakeups in guests and prints their reports, to try a machine by hand:
//!
//! `guest METER HOUSEKEEPING DOMAIN=CPUS…`, for example
//! `guest bin/rampart-meter 0 vm=1 vm=2 vm:noisy=` for two real-time guests beside a noisy one.
//! All of them are up at once.
#![expect(clippy::print_stdout, reason = "an example")]

use std::error::Error;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rampart_domain::{Start, domain};
use rampart_host::{MachineRoot, read_machine};
use rampart_model::{
    CpuSet, DomainSelection, GuestRole, MeterEvent, MeterKind, MeterSettings, Nanos,
};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let meter = PathBuf::from(arguments.next().ok_or("METER is missing")?);
    let housekeeping: CpuSet = arguments.next().ok_or("HOUSEKEEPING is missing")?.parse()?;
    let machine = read_machine(&MachineRoot::system());
    let mut domains = Vec::new();
    for word in arguments {
        let (name, cpus) = word.split_once('=').ok_or("DOMAIN=CPUS")?;
        let selection: DomainSelection = name.parse()?;
        let domain = domain(selection);
        let begin = Instant::now();
        let availability = domain.availability(&machine);
        println!(
            "{name}: available {} after {:.1} s",
            availability.available,
            begin.elapsed().as_secs_f64()
        );
        for finding in &availability.findings {
            println!("  {finding}");
        }
        domains.push((selection, domain, cpus.parse::<CpuSet>()?));
    }
    let mut running = Vec::new();
    for (number, (selection, domain, cpus)) in domains.iter().enumerate() {
        let plan = MeterSettings {
            duration: Nanos::from_secs(5),
            interval: Nanos::from_millis(5),
            ..MeterSettings::new(MeterKind::Wakeup, cpus.clone())
        };
        let name = format!("guest-{number}");
        let begin = Instant::now();
        let started = domain.start(&Start {
            meter: &meter,
            plan: &plan,
            housekeeping: &housekeeping,
            name: &name,
            stay_up: false,
        })?;
        println!(
            "{selection}: up after {:.1} s",
            begin.elapsed().as_secs_f64()
        );
        running.push((*selection, started));
    }
    for (_, running) in &mut running {
        running.go()?;
    }
    let mut left = running
        .iter()
        .filter(|(selection, _)| selection.guest != Some(GuestRole::Noisy))
        .count();
    let begin = Instant::now();
    while left > 0 {
        if begin.elapsed() > Duration::from_secs(120) {
            return Err("no end".into());
        }
        for (selection, running) in &mut running {
            if let Some(event) = running.next_event(Duration::from_millis(20))? {
                match event {
                    MeterEvent::Finished { threads, findings } => {
                        left -= 1;
                        println!("{selection}: {threads:#?} {findings:#?}");
                    }
                    MeterEvent::Refused(refusal) => return Err(refusal.finding.to_string().into()),
                    _ => {}
                }
            }
        }
    }
    for (selection, running) in running.into_iter().rev() {
        if let Some(guest) = running.guest() {
            println!("{selection}: {}", serde_json::to_string_pretty(&guest)?);
        }
        running.finish()?;
    }
    Ok(())
}
