// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The choices of a plan for knobs: valid names and values.

use std::collections::BTreeMap;

use rampart_model::{KnobChoice, KnobEffect, SchedulingPolicy};

use crate::machine::compare::cpus;
use crate::{Expected, Format, Knob, Location, find};

/// The name in a plan that applies to every knob without an entry.
pub const DEFAULT: &str = "default";

/// Knobs that remove a protection against real-time threads that never sleep.
const SAFETY_NETS: [&str; 3] = ["real-time-throttling", "fair-server", "extensible-server"];

/// Returns whether a knob removes a protection against real-time threads that never sleep. Such a
/// knob changes only if the plan names it.
#[must_use]
pub fn is_safety_net(knob: &str) -> bool {
    SAFETY_NETS.contains(&knob)
}

/// Knobs that are set together with the isolation (`host::Shield`), always to the housekeeping
/// CPUs. The thread of an interrupt follows the interrupt (`irq_thread_check_affinity` in
/// kernel/irq/manage.c).
pub(crate) const SET_WITH_ISOLATION: [&str; 5] = [
    "interrupt-affinity",
    "interrupt-thread-affinity",
    "default-interrupt-affinity",
    "unbound-workqueues",
    "workqueue-masks",
];

/// Returns the choice of a plan for a knob: by its name, else by [`DEFAULT`]; `None` if it has
/// neither.
#[must_use]
pub fn chosen<'a>(host: &'a BTreeMap<String, KnobChoice>, knob: &str) -> Option<&'a KnobChoice> {
    host.get(knob).or_else(|| host.get(DEFAULT))
}

/// Checks the choice of a plan for a knob, by any name that [`find`] knows.
///
/// # Errors
/// Returns the message and the fix if there is no such knob, or if it cannot have this value.
pub fn allowed(name: &str, choice: &KnobChoice) -> Result<(), (String, String)> {
    if name == DEFAULT {
        return match choice.value {
            None => Ok(()),
            Some(_) => Err((
                format!("`{DEFAULT}` is every knob that is not named, and has no value"),
                format!("write {DEFAULT} = \"{}\"", choice.action),
            )),
        };
    }
    let knob = find(name)?;
    match &choice.value {
        Some(value) if !knob.takes(value) => Err((
            format!("the knob `{name}` cannot be `{}`", value.escape_debug()),
            match knob.values().as_str() {
                "" => "leave the value out".to_owned(),
                values => format!("write {values}, or leave the value out"),
            },
        )),
        _ => Ok(()),
    }
}

impl Knob {
    /// Returns whether it can be set at run time or by a restart: a file, a kernel argument, a
    /// thread. Firmware, other kernels and programs are excluded.
    #[must_use]
    pub fn is_settable(&self) -> bool {
        let excluded = [KnobEffect::InFirmware, KnobEffect::WithAnotherKernel];
        !excluded.contains(&self.effect)
            && matches!(
                self.location,
                Location::File(_, _)
                    | Location::Boot { .. }
                    | Location::ThreadPolicy(_)
                    | Location::ThreadAffinity(_)
            )
    }

    /// Returns whether a plan may choose this value: the name of a choice, or for files and
    /// policies the value itself.
    #[must_use]
    pub fn takes(&self, value: &str) -> bool {
        self.choices.iter().any(|choice| choice.name == value) || self.takes_literally(value)
    }

    /// Returns whether a plan may name the literal value of its file.
    fn is_written_literally(&self) -> bool {
        match self.location {
            // The file only shows a value that the kernel command line or the firmware sets.
            Location::File(_, _) if self.effect.needs_restart() => false,
            // Control groups belong to their managers.
            Location::File(_, paths) => {
                !SET_WITH_ISOLATION.contains(&self.name)
                    && !paths.iter().any(|path| path.starts_with("/sys/fs/cgroup/"))
            }
            _ => false,
        }
    }

    /// Returns whether this text is a valid literal value.
    fn takes_literally(&self, value: &str) -> bool {
        match self.location {
            Location::File(_, _) if !self.is_written_literally() => false,
            Location::ThreadPolicy(_) => priority(value).is_some(),
            Location::File(Format::Text, _) => {
                let one_line = !value.trim().is_empty() && !value.contains(char::is_control);
                one_line && (!self.is_number() || value.trim().parse::<i64>().is_ok())
            }
            Location::File(format, _) => cpus(format, value).is_some(),
            _ => false,
        }
    }

    /// Returns whether all choices with a value expect a number.
    fn is_number(&self) -> bool {
        let mut expectations = std::iter::once(self.expected)
            .chain(self.choices.iter().map(|choice| choice.expected))
            .filter(|expected| *expected != Expected::Informational)
            .peekable();
        expectations.peek().is_some()
            && expectations.all(|expected| {
                matches!(
                    expected,
                    Expected::Number(_)
                        | Expected::AtLeast(_)
                        | Expected::AtMost(_)
                        | Expected::SomeAtLeast(_)
                        | Expected::ZeroOrAtLeast(_)
                )
            })
    }

    /// Returns the values that a plan may choose, in words; empty if there are none.
    fn values(&self) -> String {
        let itself = match self.location {
            Location::File(_, _) if !self.is_written_literally() => None,
            Location::ThreadPolicy(_) => Some("a priority from 1 to 99"),
            Location::File(Format::Text, _) if self.is_number() => Some("a number"),
            Location::File(Format::Text, _) => Some("one line of text"),
            Location::File(Format::List, _) => Some("CPUs as a list such as 0-1"),
            Location::File(Format::Mask, _) => Some("CPUs as a mask such as 3"),
            _ => None,
        };
        let values: Vec<&str> = self
            .choices
            .iter()
            .map(|choice| choice.name)
            .chain(itself)
            .collect();
        values.join(" or ")
    }

    /// Returns the expected value under the choices of a plan: that of the chosen choice, the
    /// chosen value, else that of the first choice.
    #[must_use]
    pub fn expected_by(&self, isolation: &crate::Isolation) -> Expected {
        let Some(value) = isolation.choices.get(self.name) else {
            return self.expected;
        };
        if let Some(choice) = self.choices.iter().find(|choice| choice.name == value) {
            return choice.expected;
        }
        match (self.location, priority(value)) {
            (Location::ThreadPolicy(_), Some(priority)) => Expected::FifoAtLeast(priority),
            (Location::File(_, _), _) if self.takes_literally(value) => Expected::Chosen(self.name),
            _ => self.expected,
        }
    }
}

/// Parses a priority in the format of a plan: `11`, or `fifo:11`.
fn priority(value: &str) -> Option<u8> {
    let number = value.trim();
    let number = number.strip_prefix("fifo:").unwrap_or(number);
    match format!("fifo:{number}").parse().ok()? {
        SchedulingPolicy::Fifo(priority) => Some(priority),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use rampart_model::KnobAction;

    use super::*;
    use crate::{Isolation, named, satisfies, to_write};

    fn choice(value: &str) -> KnobChoice {
        KnobChoice {
            action: KnobAction::Apply,
            value: Some(value.to_owned()),
        }
    }

    #[test]
    fn accepts_only_names_and_values_of_the_catalogue() {
        for (name, value) in [
            ("ksoftirqd-priority", "nto"),
            ("ksoftirqd-priority", "11"),
            ("kernel.timer_migration", "0"),
            ("ksoftirqd-priority", "fifo:11"),
            ("timer-migration", "stay"),
            ("timer-migration", "1"),
            ("governor", "schedutil"),
            ("receive-steering", "3"),
            ("nohz-full", "ticking"),
            ("system-slice-cpus", "partition"),
        ] {
            assert_eq!(allowed(name, &choice(value)), Ok(()), "{name} {value}");
        }
        for (name, value, words) in [
            (
                "ksoftirqd-priority",
                "100",
                "tuned or nto or kernel or a priority",
            ),
            ("ksoftirqd-priority", "other", "a priority from 1 to 99"),
            ("timer-migration", "yes", "a number"),
            ("governor", "a\nb", "one line"),
            ("receive-steering", "x", "as a mask"),
            ("default-interrupt-affinity", "3", "leave the value out"),
            ("workqueue-masks", "3", "leave the value out"),
            ("unbound-workqueues", "3", "leave the value out"),
            ("system-slice-cpus", "0", "slices or partition, or leave"),
            ("nohz-full", "2-3", "tickless or ticking, or leave"),
            ("preempt-rt", "y", "leave the value out"),
            ("default", "1", "default = \"apply\""),
            ("kernel-thread-priorities", "11", "kernel-thread-affinity"),
            ("no such", "1", "`rampart knobs` lists all"),
            ("", "1", "`rampart knobs` lists all"),
        ] {
            let (what, fix) = allowed(name, &choice(value)).expect_err(name);
            assert!(fix.contains(words), "{name} {value}: {what}; {fix}");
        }
    }

    #[test]
    fn writes_and_compares_a_chosen_value() {
        let mut isolation = Isolation::default();
        for (knob, value, right, wrong) in [
            ("governor", "schedutil", "schedutil\n", "performance"),
            ("timer-migration", "1", "1", "0"),
            ("receive-steering", "3", "00000000,00000003", "f"),
            (
                "transparent-huge-pages",
                "always",
                "[always] madvise never",
                "always [madvise] never",
            ),
            ("ksoftirqd-priority", "11", "fifo:11", "fifo:10"),
        ] {
            isolation.choices.insert(knob.to_owned(), value.to_owned());
            let knob = named(knob).expect(knob);
            let expected = knob.expected_by(&isolation);
            let format = match knob.location {
                Location::File(format, _) => format,
                _ => Format::Text,
            };
            let text = to_write(expected, format, &isolation).expect(knob.name);
            assert!(text.ends_with(value), "{text}");
            for (found, satisfied) in [(right, true), (wrong, false)] {
                assert_eq!(
                    satisfies(expected, format, found, &isolation),
                    Some(satisfied),
                    "{}: {found}",
                    knob.name
                );
            }
        }
    }

    #[test]
    fn applies_the_default_to_unnamed_knobs() {
        let skip = KnobChoice {
            action: KnobAction::Skip,
            value: None,
        };
        let host = BTreeMap::from([
            (DEFAULT.to_owned(), skip.clone()),
            ("governor".to_owned(), choice("performance")),
        ]);
        assert_eq!(chosen(&host, "governor"), Some(&choice("performance")));
        assert_eq!(chosen(&host, "swappiness"), Some(&skip));
        assert_eq!(chosen(&BTreeMap::new(), "swappiness"), None);
    }
}
