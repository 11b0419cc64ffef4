// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The engines' environment on a Linux thread.

use std::sync::atomic::{AtomicBool, Ordering};

use rampart_model::Nanos;

use super::clock::FastClock;
use super::rseq::CurrentCpu;
use super::{clock, counter};
use crate::engine::{Clock, Counter, Processor, Sample, Sink, Sleep, Stop, Work, work};
use crate::ring::Producer;

/// The environment with the counter of the processor.
#[derive(Debug)]
pub(crate) struct LinuxThread<'a> {
    pub(crate) producer: Producer,
    pub(crate) cpu: CurrentCpu,
    pub(crate) clock: FastClock,
    pub(crate) stop: &'a AtomicBool,
}

impl Clock for LinuxThread<'_> {
    #[inline(always)]
    fn now(&self) -> Nanos {
        self.clock.now()
    }
}

impl Sleep for LinuxThread<'_> {
    #[inline(always)]
    fn sleep_until(&self, at: Nanos) -> bool {
        // A signal other than a stop request (for example from a debugger) also interrupts the
        // sleep.
        while !clock::sleep_until(at) {
            if self.stop_requested() {
                return false;
            }
        }
        true
    }
}

impl Counter for LinuxThread<'_> {
    #[inline(always)]
    fn read(&self) -> u64 {
        counter::hardware()
    }
}

impl Processor for LinuxThread<'_> {
    #[inline(always)]
    fn processor(&self) -> u32 {
        self.cpu.get()
    }
}

impl Stop for LinuxThread<'_> {
    #[inline(always)]
    fn stop_requested(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

impl Work for LinuxThread<'_> {
    #[inline(always)]
    fn work(&self, turns: u64) {
        work::arithmetic(turns);
    }
}

impl Sink for LinuxThread<'_> {
    #[inline(always)]
    fn push(&mut self, sample: Sample) {
        self.producer.push(sample);
    }
}

/// The environment with the clock instead of the counter.
#[derive(Debug)]
pub(crate) struct ByClock<'a, 'b>(pub(crate) &'a mut LinuxThread<'b>);

impl Clock for ByClock<'_, '_> {
    #[inline(always)]
    fn now(&self) -> Nanos {
        self.0.now()
    }
}

impl Counter for ByClock<'_, '_> {
    #[inline(always)]
    fn read(&self) -> u64 {
        self.0.now().0
    }
}

impl Processor for ByClock<'_, '_> {
    #[inline(always)]
    fn processor(&self) -> u32 {
        self.0.processor()
    }
}

impl Stop for ByClock<'_, '_> {
    #[inline(always)]
    fn stop_requested(&self) -> bool {
        self.0.stop_requested()
    }
}

impl Sink for ByClock<'_, '_> {
    #[inline(always)]
    fn push(&mut self, sample: Sample) {
        self.0.push(sample);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::ProcessorWatch;
    use crate::engine::noise::{Noise, NoiseTotals};
    use crate::linux::counter::CounterKind;
    use crate::ring::ring;
    use crate::timescale::Timescale;

    /// Spins for 2 ms. The test checks only sums, which also hold on a busy machine.
    fn spin(counter: CounterKind) -> (NoiseTotals, Timescale) {
        let stop = AtomicBool::new(false);
        let (producer, _consumer) = ring(1024);
        let mut thread = LinuxThread {
            producer,
            cpu: CurrentCpu::of_this_thread(),
            clock: FastClock::find(),
            stop: &stop,
        };
        let scale = counter.first_scale().expect("moves");
        let noise = Noise::new(scale.ticks(Nanos::from_micros(100)));
        let until = thread.now() + Nanos::from_millis(2);
        let mut watch = ProcessorWatch::default();
        let totals = match counter {
            CounterKind::Hardware => noise.run(&mut thread, &mut watch, &scale, until),
            CounterKind::Clock => noise.run(&mut ByClock(&mut thread), &mut watch, &scale, until),
        };
        assert!(thread.now() >= until);
        assert!(watch.seen().next().is_some());
        (totals, scale)
    }

    #[test]
    fn noise_spins_by_counter_and_by_clock() {
        for counter in [CounterKind::Hardware, CounterKind::Clock] {
            let (totals, scale) = spin(counter);
            assert!(totals.turns > 0 && totals.shortest.is_some(), "{totals:?}");
            assert!(totals.stolen <= totals.length, "{totals:?}");
            // The loop begins after the clock was read, so it observes slightly less than 2 ms.
            assert!(scale.length(totals.length) > Nanos::ZERO, "{totals:?}");
        }
    }
}
