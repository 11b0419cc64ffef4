// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An attack on the root's end of a network: writes plausible and random values to all words of its section that
//! the root reads, while the root reads them, and rings. Half of the time it behaves so well that the root
//! connects and receives frames. The argument is the seed.
#![no_std]
#![no_main]

use core::sync::atomic::Ordering::Relaxed;

use rampart_hypervisor_cells::network::section;
use rampart_hypervisor_cells::random::Random;
use rampart_hypervisor_cells::{Word, count, hvc, set_shared_word, wait};
use rampart_hypervisor_core::interface::Hypercall;
use rampart_ring::network::{
    ANSWERED, HEADER_WORDS, MAGIC, NUMBER, RECEIVE_MARK, SEND_MARK, SLOT_WORDS, TAKEN, WRITTEN,
    slots,
};

#[unsafe(no_mangle)]
extern "C" fn cell_main(argument: u64) {
    let own = section("network.root", true);
    let other = section("network.root.in", false);
    let (Some((own, value)), Some((other, _))) = (own, other) else {
        count(Word::Exceptions);
        return;
    };
    let slots = slots(own.len()).unwrap_or(2);
    let mut random = Random::new(argument);
    let mut written = 0_u64;
    count(Word::Begun);
    for round in 0_u64.. {
        // A new session now and then, which answers the root's.
        if random.number().is_multiple_of(64) {
            written = 0;
            own[WRITTEN].store(0, Relaxed);
            own[TAKEN].store(0, Relaxed);
            own[0].store(MAGIC, Relaxed);
            own[NUMBER].store(random.number(), Relaxed);
        }
        own[ANSWERED].store(other[NUMBER].load(Relaxed), Relaxed);
        let slot = HEADER_WORDS + (written % slots) as usize * SLOT_WORDS;
        let length = match random.number() % 8 {
            0 => random.number(),
            1 => random.number() % 16,
            _ => random.number() % 2100,
        };
        own[slot].store(length, Relaxed);
        for _ in 0..4 {
            let word = random.number() as usize % SLOT_WORDS;
            own[slot + word.max(1)].store(random.number(), Relaxed);
        }
        // An Ethernet header for everyone, with IPv4 or ARP.
        own[slot + 1].store(0xffff_ffff_ffff | random.number() << 48, Relaxed);
        let kind = if random.number().is_multiple_of(2) { 0x0008 } else { 0x0608 };
        own[slot + 2].store(random.number() << 48 | kind << 32 | random.number() >> 32, Relaxed);
        written += 1;
        own[WRITTEN].store(written, Relaxed);
        own[TAKEN].store(other[WRITTEN].load(Relaxed), Relaxed);
        // Impossible values, sometimes.
        let word = [0, NUMBER, ANSWERED, WRITTEN, TAKEN, RECEIVE_MARK, SEND_MARK]
            [random.number() as usize % 7];
        match random.number() % 256 {
            0 => own[word].store(random.number(), Relaxed),
            1 => own[word].store(random.number() % (4 * slots), Relaxed),
            // Any length of the frame that the root reads now.
            _ => own[slot].store(random.number() % 2100, Relaxed),
        }
        if random.number().is_multiple_of(4) {
            hvc(u32::from(Hypercall::Doorbell).into(), value >> 48);
        }
        set_shared_word(Word::Done, round);
    }
    wait();
}

#[unsafe(no_mangle)]
extern "C" fn cell_exception() {
    count(Word::Exceptions);
}
