// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random steps of a hostile root or cell: hypercalls, PSCI calls, system registers, registers of devices, software
//! interrupts and accesses to memory, from a seed. The area (`remote.rs`) has the seed in the first argument, the kind
//! of the program ([`ROOT`] or another one) in the second, the cell that the root must not manage in the third, and
//! addresses in the words of the code, up to the first 0.

use crate::remote::{
    ARGUMENTS, Area, CELL_WITHOUT_TRANSLATION, CODE, CODE_WORDS, KIND, LATEST, RANDOM, ROOT, RUNS,
    STEPS, STOP,
};

const HYPERCALL: u32 = 0xd400_0002;
const FIRMWARE_CALL: u32 = 0xd400_0003;
const RETURN: u32 = 0xd65f_03c0;
/// `ldrb w0, [x0]`, and `strb w1, [x0]` 8 bits below; wider accesses differ in the two highest bits.
const LOAD: u32 = 0x3940_0000;
const STORE: u32 = 0x3900_0001;
/// `msr REGISTER, x0`; bit 21 makes it `mrs`.
const WRITE_REGISTER: u32 = 0xd500_0000;
const IS_READ: u32 = 1 << 21;
/// Registers of the interrupt controller that change an interrupt at once: group, enable, pending, active, priority of
/// the timer, trigger.
const CONTROLS: [u64; 9] = [0x80, 0x100, 0x180, 0x200, 0x280, 0x300, 0x380, 0x418, 0xc04];
const HYPERCALLS: u64 = 0xc600_5200;
const DESTROY: u64 = 0xc600_5205;
const PSCI: u64 = 0x8400_0000;

/// The generator (Marsaglia, "Xorshift RNGs", with the multiplier of Vigna's xorshift64*).
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// Starts it with a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        // A generator of this kind must not start with 0.
        Self(seed | 1)
    }

    /// Returns the next number.
    pub fn number(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, limit: u64) -> u64 {
        // The lowest bits are the least random.
        (self.number() >> 11) % limit
    }

    /// A value that a check may not expect.
    fn value(&mut self) -> u64 {
        match self.below(6) {
            0 => self.below(4),
            1 => self.below(64),
            2 => 1 << self.below(64),
            3 => u64::MAX >> self.below(64),
            4 => 0u64.wrapping_sub(self.below(8)),
            _ => self.number(),
        }
    }
}

/// Makes steps until the test ends the order.
pub(crate) fn run(area: Area) {
    let mut random = Random::new(area.word(ARGUMENTS));
    let kept = [0, 1, 2].map(|index| area.word(ARGUMENTS + index));
    let mut addresses = [0; CODE_WORDS];
    for (index, address) in addresses.iter_mut().enumerate() {
        *address = area.word(CODE + index);
    }
    let count = addresses.iter().take_while(|address| **address != 0).count().max(1);
    let addresses = &addresses[..count];
    let mut steps = 0;
    while area.word(STOP) == 0 && area.word(KIND) == RANDOM {
        step(area, &mut random, kept[1], kept[2], addresses, steps);
        steps += 1;
        area.set(RUNS, steps);
    }
    for (index, value) in kept.into_iter().enumerate() {
        area.set(ARGUMENTS + index, value);
    }
}

fn step(
    area: Area,
    random: &mut Random,
    kind: u64,
    protected: u64,
    addresses: &[u64],
    number: u64,
) {
    let mut arguments = [0; 8].map(|_: u64| random.value());
    let choice = random.below(64);
    let instruction = match choice {
        0..16 => {
            arguments[0] = HYPERCALLS + random.below(0x18);
            if random.below(2) == 0 {
                arguments[1] = random.below(5);
            }
            if kind == ROOT && arguments[0] == HYPERCALLS + 1 {
                arguments[1] = addresses[random.below(addresses.len() as u64) as usize];
                arguments[2] = random.below(1 << 10);
            } else if kind == ROOT && arguments[0] <= DESTROY && arguments[1] == protected {
                arguments[1] = protected + 1;
            }
            HYPERCALL
        }
        16..24 => {
            arguments[0] = PSCI + random.below(0x20) + (random.below(2) << 30);
            arguments[1] = random.below(5);
            // CPU_SUSPEND, CPU_OFF, SYSTEM_OFF, SYSTEM_RESET.
            if kind == ROOT && matches!(arguments[0] & 0x1f, 1 | 2 | 8 | 9) {
                arguments[0] = PSCI;
            }
            // CPU_ON of the root: at no entry that runs.
            if kind == ROOT && arguments[0] & 0x1f == 3 {
                arguments[2] = 1 << 45;
            }
            FIRMWARE_CALL
        }
        24..36 => system_register(random, kind),
        36..56 => {
            let device = addresses[random.below(addresses.len() as u64) as usize];
            let offset = match random.below(4) {
                0 => random.below(0x1000),
                1 => 0x1_0000 + random.below(0x1000),
                2 => random.below(0x2_0000),
                _ => CONTROLS[random.below(CONTROLS.len() as u64) as usize],
            };
            let size = if random.below(8) == 0 { random.below(4) } else { 2 };
            arguments[0] = device + (offset >> size << size);
            memory(random, size)
        }
        // The registers that send software interrupts: ICC_SGI1R_EL1, ICC_ASGI1R_EL1, ICC_SGI0R_EL1.
        56..63 => {
            arguments[0] = random.below(16) << 24 | random.below(16) | random.below(2) << 40;
            WRITE_REGISTER | register(3, 0, 12, 11, 5 + random.below(3))
        }
        // Memory of others, which ends a cell.
        _ if kind == ROOT || random.below(64) == 0 => {
            arguments[0] = random.value() & !7;
            memory(random, 3)
        }
        // NOP, `msr daifclr, #15`, `msr daifset, #15`, WFI.
        _ if kind == ROOT => 0xd503_201f,
        _ => [0xd503_201f, 0xd503_4fff, 0xd503_4fdf, 0xd503_207f][random.below(4) as usize],
    };
    // QEMU 7.2 compares ICC_BPR1_EL1 with its minimum before it takes the lowest three bits, and fails an assertion
    // if these are 0 then (hw/intc/arm_gicv3_cpuif.c, icc_bpr_write and icc_gprio_mask).
    if instruction == WRITE_REGISTER | register(3, 0, 12, 12, 3) {
        arguments[0] &= 7;
    }
    // For ICC_EOIR1_EL1 it takes numbers of LPIs as those of shared interrupts, and accesses memory beyond its arrays
    // (icc_eoir_write, icc_deactivate_irq, gicv3_update).
    if instruction == WRITE_REGISTER | register(3, 0, 12, 12, 1) {
        arguments[0] &= 0x1fff;
    }
    if kind == CELL_WITHOUT_TRANSLATION {
        // SCTLR_EL1.M, and the bits of VBAR_EL1 that every CPU has.
        match instruction {
            SET_SYSTEM_CONTROL => arguments[0] &= !1,
            SET_VECTORS => arguments[0] &= 0xffff_ffff,
            _ => {}
        }
    }
    let latest = LATEST + 2 * (number as usize % STEPS);
    area.set(latest, u64::from(instruction) | number << 32);
    area.set(latest + 1, arguments[0]);
    for (index, argument) in arguments.into_iter().enumerate() {
        area.set(ARGUMENTS + index, argument);
    }
    area.set_code(0, instruction);
    area.set_code(1, RETURN);
    area.run();
}

fn memory(random: &mut Random, size: u64) -> u32 {
    let access = if random.below(2) == 0 { LOAD } else { STORE };
    access | (size as u32) << 30
}

/// Returns a register in the encoding of MSR (Arm ARM C6.2.247).
const fn register(op0: u64, op1: u64, n: u64, m: u64, op2: u64) -> u32 {
    (op0 << 19 | op1 << 16 | n << 12 | m << 8 | op2 << 5) as u32
}

const SET_SYSTEM_CONTROL: u32 = WRITE_REGISTER | register(3, 0, 1, 0, 0);
const SET_VECTORS: u32 = WRITE_REGISTER | register(3, 0, 12, 0, 0);

fn system_register(random: &mut Random, kind: u64) -> u32 {
    let access = if random.below(2) == 0 { 0 } else { IS_READ };
    let any = |random: &mut Random| [random.below(16), random.below(8)];
    let [m, op2] = any(random);
    WRITE_REGISTER
        | access
        | match random.below(if kind == ROOT { 4 } else { 6 }) {
            // The CPU interface of the interrupt controller: masks, control, priorities.
            0 => register(3, 0, 12, 8 + m % 5, op2),
            1 => register(3, 0, 4, 6, 0),
            // Performance counters; debug registers.
            2 => register(3, 3, 9, 12 + m % 4, op2),
            // MDSCR_EL1 enables single steps.
            3 if kind == ROOT => register(2, 0, 0, m, 4 + op2 % 4),
            3 => register(2, 0, random.below(2), m, op2),
            // Any register and any instruction of EL1 and EL0.
            4 => register(1 + random.below(3), 3 * random.below(2), random.below(16), m, op2),
            // Control, translation, stack and vectors of EL1.
            _ => register(3, 0, random.below(13), m % 5, op2 % 4),
        }
}
