// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `irq`: from a timer to the handler of its interrupt.
//!
//! The program sleeps until shortly before the planned moment and waits for the interrupt awake, so
//! that leaving an idle state is not in the sample. The sample is the handler's first reading of the
//! counter minus the planned moment.

use rampart_model::Nanos;

use super::{Clock, Grid, Interrupt, Processor, ProcessorWatch, Sample, Sink, Sleep, Stop};

/// So long before the planned moment the program is awake, or half a period where that is shorter.
/// Longer than a processor needs to leave WFI.
const AWAKE: Nanos = Nanos::from_micros(50);

/// The loop; its grid goes on from one [`Irq::run`] to the next.
#[derive(Debug, Clone)]
pub struct Irq {
    grid: Grid,
}

impl Irq {
    /// A loop whose first planned interrupt is at `first`.
    #[must_use]
    pub const fn new(first: Nanos, interval: Nanos) -> Self {
        Self {
            grid: Grid::new(first, interval),
        }
    }

    /// Takes the samples of all planned moments before `until`, or until it is told to stop.
    pub fn run<E>(&mut self, environment: &mut E, watch: &mut ProcessorWatch, until: Nanos)
    where
        E: Clock + Sleep + Interrupt + Processor + Stop + Sink,
    {
        let awake = AWAKE.min(Nanos(self.grid.interval().0 / 2));
        while self.grid.next() < until && !environment.stop_requested() {
            let planned = self.grid.next();
            if !environment.sleep_until(planned.saturating_sub(awake)) {
                break;
            }
            let Some(taken) = environment.interrupt_at(planned) else {
                break;
            };
            watch.note(environment.processor());
            let delivery = taken.saturating_sub(planned);
            let missed = self.grid.advance(delivery, until);
            environment.push(Sample {
                at: taken.0,
                value: delivery.0,
                missed,
                start: 0,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::simulation::Simulation;

    fn seen(machine: &Simulation) -> Vec<(u64, u64, u64)> {
        let told = |sample: &Sample| (sample.at, sample.value, sample.missed);
        machine.samples().iter().map(told).collect()
    }

    #[test]
    fn samples_are_the_way_to_the_handler_with_its_moments() {
        let mut machine = Simulation::new(1_000);
        machine.delivery_cost = 7;
        // While the interrupt is waited for, and over three planned moments.
        machine.stall(2_900, 350);
        machine.stall(5_000, 3_100);
        let mut irq = Irq::new(Nanos(2_000), Nanos(1_000));
        irq.run(&mut machine, &mut ProcessorWatch::default(), Nanos(10_000));
        assert_eq!(
            seen(&machine),
            [
                (2_007, 7, 0),
                (3_257, 257, 0),
                (4_007, 7, 0),
                (8_107, 3_107, 3),
                (9_007, 7, 0)
            ]
        );
    }

    #[test]
    fn ends_when_told_to_and_without_a_sample_for_the_interrupt_that_did_not_come() {
        let mut machine = Simulation::new(0);
        machine.stop_at(3_400);
        let mut irq = Irq::new(Nanos(1_000), Nanos(1_000));
        irq.run(&mut machine, &mut ProcessorWatch::default(), Nanos(9_000));
        assert_eq!(machine.samples().len(), 3);
        // Already awake for it.
        let mut machine = Simulation::new(0);
        machine.stop_at(2_999);
        let mut irq = Irq::new(Nanos(1_000), Nanos(1_000));
        irq.run(&mut machine, &mut ProcessorWatch::default(), Nanos(9_000));
        assert_eq!(machine.samples().len(), 2);
    }
}
