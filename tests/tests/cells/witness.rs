// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A cell that no attack may affect: it takes interrupts of its timer, without an exit, and its memory stays as it is.

use rampart_hypervisor_cells::Word;

use crate::machine::{
    Attacked, Machine, PRIVATE_BYTES, WITNESS_CPU, ensure, page, private, witness,
};

const PATTERN: u64 = 0x1122_3344_5566_7788;

impl Machine {
    /// Starts the witness.
    pub(crate) fn start_witness(&self) -> Result<Witness<'_>, String> {
        self.start_witness_after(|| Ok(()))
    }

    /// Starts the witness after an attack on its CPU, which is off.
    pub(crate) fn start_witness_after(
        &self,
        attack: impl FnOnce() -> Attacked,
    ) -> Result<Witness<'_>, String> {
        self.turn_off(WITNESS_CPU as u64)?;
        attack()?;
        let number = self.start_parked(&witness(), "rampart-cell-irq")?;
        for at in (0..PRIVATE_BYTES).step_by(4096) {
            self.set(private() + at, PATTERN ^ at);
        }
        let witness = Witness {
            machine: self,
            number,
            exits: Vec::new(),
        };
        let ready = self.wait(|| self.word(page()) != 0 && witness.interrupts() > 2);
        ensure(ready, || "the witness does not begin".to_owned())?;
        Ok(Witness {
            exits: self.exits(WITNESS_CPU),
            ..witness
        })
    }
}

/// The cell that no attack may affect.
#[derive(Debug)]
pub(crate) struct Witness<'a> {
    machine: &'a Machine,
    pub(crate) number: u64,
    exits: Vec<u64>,
}

impl Witness<'_> {
    fn interrupts(&self) -> u64 {
        self.machine.word(page() + 8 * Word::Interrupts as u64)
    }

    /// Checks that it takes interrupts of its timer, no other interrupt, without an exit, and that its memory is
    /// unchanged.
    pub(crate) fn check(&self) -> Attacked {
        let machine = self.machine;
        let from = self.interrupts();
        let lives = machine.wait(|| self.interrupts() > from + 20);
        ensure(lives, || {
            "the witness takes no interrupts of its timer".to_owned()
        })?;
        let word = |word: Word| machine.word(page() + 8 * word as u64);
        let unexpected = word(Word::Unexpected);
        ensure(unexpected == 0, || {
            let number = word(Word::UnexpectedNumber);
            format!("the witness takes {unexpected} foreign interrupts, the latest is {number}")
        })?;
        let exits = machine.exits(WITNESS_CPU);
        ensure(exits == self.exits, || {
            format!("the witness exits: {exits:?}, before {:?}", self.exits)
        })?;
        let changed = (0..PRIVATE_BYTES)
            .step_by(4096)
            .find(|at| machine.word(private() + at) != PATTERN ^ at);
        ensure(changed.is_none(), || {
            format!("the witness's memory has changed: {changed:x?}")
        })
    }

    /// Physical address of a word that only the witness may access, and its value.
    pub(crate) fn secret(&self) -> (u64, u64) {
        (private(), PATTERN)
    }
}
