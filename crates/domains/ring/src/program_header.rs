// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The header of a program without an operating system: what the machine's device tree says and a
//! program needs. Whoever loads the program fills it in, so that the same file runs on every machine.
//!
//! ```text
//! byte 16    MAGIC
//! byte 24    address of the distributor (GICD), in the cell's address space
//! byte 32    address of the redistributor (GICR) of the machine's first CPU, or of the CPU interface (GICC) of a GICv2
//! ```
//!
//! A program without [`MAGIC`] is loaded as it is.

/// Location of the header in the program, in bytes.
pub const OFFSET: usize = 16;
/// The first word of the header.
pub const MAGIC: u64 = u64::from_le_bytes(*b"rampgic1");
/// Number of words of the header.
pub const WORDS: usize = 3;
/// Number of the word with the address of the distributor.
pub const DISTRIBUTOR: usize = 1;
/// Number of the word with the address of the first redistributor, or of a GICv2's CPU interface.
pub const CPU_FRAMES: usize = 2;

/// The interrupt controller of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InterruptController {
    /// Address of GICD.
    pub distributor: u64,
    /// Address of GICR of the first CPU, or of GICC of a GICv2.
    pub cpu_frames: u64,
}

/// Returns whether a program has the header.
#[must_use]
pub fn is_present(program: &[u8]) -> bool {
    let header = program.get(OFFSET..OFFSET + WORDS * 8);
    header.is_some_and(|header| header.starts_with(&MAGIC.to_le_bytes()))
}

/// Fills in the header. Returns `false` and changes nothing if the program has none.
pub fn fill_in(program: &mut [u8], controller: InterruptController) -> bool {
    if !is_present(program) {
        return false;
    }
    for (word, value) in [
        (DISTRIBUTOR, controller.distributor),
        (CPU_FRAMES, controller.cpu_frames),
    ] {
        let start = OFFSET + word * 8;
        program[start..start + 8].copy_from_slice(&value.to_le_bytes());
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTROLLER: InterruptController = InterruptController {
        distributor: 0x3880_0000,
        cpu_frames: 0x3888_0000,
    };

    #[test]
    fn fills_in_only_a_program_with_the_header() {
        let mut program = [0xff; 64];
        assert!(!fill_in(&mut program, CONTROLLER));
        assert_eq!(program, [0xff; 64]);
        program[OFFSET..OFFSET + 8].copy_from_slice(b"rampgic1");
        assert!(fill_in(&mut program, CONTROLLER));
        assert_eq!(program[24..32], 0x3880_0000_u64.to_le_bytes());
        assert_eq!(program[32..40], 0x3888_0000_u64.to_le_bytes());
        assert!(program[40..].iter().all(|byte| *byte == 0xff));
        // A file that ends inside the header.
        assert!(!fill_in(&mut program[..39], CONTROLLER));
        assert!(!fill_in(&mut [], CONTROLLER));
    }
}
