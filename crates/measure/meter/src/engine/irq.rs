// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `irq`: from the expiry of a timer to the handler of its interrupt.
//!
//! The program sleeps until shortly before the planned moment and busy-waits for the interrupt, so
//! that the exit from an idle state is not part of the sample. The sample is the handler's first
//! reading of the counter minus the planned moment.

use rampart_model::Nanos;

use super::{Clock, Grid, InterruptSource, Processor, ProcessorWatch, Sample, Sink, Sleep, Stop};

/// Time before the planned moment at which the program wakes, limited to half a period. Longer than
/// a processor needs to leave WFI.
const AWAKE: Nanos = Nanos::from_micros(50);

/// The loop. Its grid continues from one [`Irq::run`] to the next.
#[derive(Debug, Clone)]
pub struct Irq {
    grid: Grid,
}

impl Irq {
    /// Creates a loop whose first interrupt is planned at `first`.
    #[must_use]
    pub const fn new(first: Nanos, interval: Nanos) -> Self {
        Self {
            grid: Grid::new(first, interval),
        }
    }

    /// Takes the samples of all planned moments before `until`, or until a stop is requested.
    pub fn run<E>(&mut self, environment: &mut E, watch: &mut ProcessorWatch, until: Nanos)
    where
        E: Clock + Sleep + InterruptSource + Processor + Stop + Sink,
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
        let entry = |sample: &Sample| (sample.at, sample.value, sample.missed);
        machine.samples().iter().map(entry).collect()
    }

    #[test]
    fn samples_are_the_latencies_up_to_the_handler() {
        let mut machine = Simulation::new(1_000);
        machine.delivery_cost = 7;
        // One stall during the wait for an interrupt, one over three planned moments.
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
    fn ends_on_a_stop_request_without_a_sample_for_the_pending_interrupt() {
        let mut machine = Simulation::new(0);
        machine.stop_at(3_400);
        let mut irq = Irq::new(Nanos(1_000), Nanos(1_000));
        irq.run(&mut machine, &mut ProcessorWatch::default(), Nanos(9_000));
        assert_eq!(machine.samples().len(), 3);
        // The stop comes during the busy-wait.
        let mut machine = Simulation::new(0);
        machine.stop_at(2_999);
        let mut irq = Irq::new(Nanos(1_000), Nanos(1_000));
        irq.run(&mut machine, &mut ProcessorWatch::default(), Nanos(9_000));
        assert_eq!(machine.samples().len(), 2);
    }
}
