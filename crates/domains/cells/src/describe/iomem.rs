// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Parses `/proc/iomem`: Linux's use of the physical address space
//! (Documentation/filesystems/proc.rst). Without privilege it shows zeros.

use super::{AddressSpan, spans};

/// The driver's name for the hypervisor's memory in this file.
const HYPERVISOR: &str = "rampart hypervisor";

/// A line of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Line {
    /// Nesting depth; 0 for the outermost resources.
    depth: usize,
    span: AddressSpan,
    name: String,
}

/// The lines of the file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Iomem(Vec<Line>);

impl Iomem {
    /// Parses the text. Returns `None` if the addresses are hidden, or there are none.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let lines: Vec<Line> = text.lines().filter_map(line).collect();
        let shown = lines.iter().any(|line| line.span.end() > 1);
        shown.then_some(Self(lines))
    }

    fn outermost(&self) -> impl Iterator<Item = &Line> {
        self.0.iter().filter(|line| line.depth == 0)
    }

    /// Returns the parts named `System RAM`.
    pub(super) fn linux_memory(&self) -> Vec<AddressSpan> {
        let ram = self.outermost().filter(|line| line.name == "System RAM");
        spans::united(ram.map(|line| line.span).collect())
    }

    /// Returns all used parts except the hypervisor's.
    pub(super) fn taken(&self) -> Vec<AddressSpan> {
        let taken = self.outermost().filter(|line| line.name != HYPERVISOR);
        taken.map(|line| line.span).collect()
    }
}

fn line(text: &str) -> Option<Line> {
    let (span, name) = text.split_once(" : ")?;
    let depth = (span.len() - span.trim_start().len()) / 2;
    let (first, last) = span.trim().split_once('-')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    let (first, last) = (number(first)?, number(last)?);
    Some(Line {
        depth,
        span: AddressSpan::between(first, last.checked_add(1)?),
        name: name.trim().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const VIRT: &str = "\
09000000-09000fff : pl011@9000000
  09000000-09000fff : 9000000.pl011 pl011@9000000
40000000-6fffffff : System RAM
  40210000-4128ffff : Kernel code
70000000-707fffff : rampart hypervisor
78000000-780fffff : reserved
";

    #[test]
    fn distinguishes_memory_of_linux_and_of_others() {
        let iomem = Iomem::parse(VIRT).expect("addresses");
        assert_eq!(
            iomem.linux_memory(),
            [AddressSpan::between(0x4000_0000, 0x7000_0000)]
        );
        assert!(
            !iomem
                .taken()
                .contains(&AddressSpan::between(0x7000_0000, 0x7080_0000))
        );
        assert!(
            iomem
                .taken()
                .contains(&AddressSpan::between(0x7800_0000, 0x7810_0000))
        );
        assert_eq!(Iomem::parse("00000000-00000000 : System RAM\n"), None);
        assert_eq!(Iomem::parse(""), None);
    }
}
