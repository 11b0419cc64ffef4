// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A network of the cell as a device of `smoltcp`.

use core::num::NonZeroU64;
use core::sync::atomic::AtomicU64;

use rampart_hypervisor_core::interface::Hypercall;
use rampart_ring::network::{FrameTransfer, Link, LinkState, MOST_FRAME};
use smoltcp::phy::{self, DeviceCapabilities, Medium};
use smoltcp::time::Instant;

use crate::{hvc, read_register, region};

/// Maximum number of frames of impossible lengths that are skipped at once.
const MOST_SKIPPED: usize = 16;

type Words = &'static [AtomicU64];

/// The cell's end of a network.
#[derive(Debug)]
pub struct Network {
    link: Link<Words, Words>,
    bell: Bell,
    /// The MAC address.
    pub address: [u8; 6],
    /// The interrupt by which the peer rings, with a rising edge.
    pub interrupt: u64,
    received: [u8; MOST_FRAME],
}

/// The doorbell that rings the peer: its index.
#[derive(Debug, Clone, Copy)]
struct Bell(u64);

impl Bell {
    fn ring_if(self, needed: bool) {
        if needed {
            // It fails while the peer does not exist; the peer looks by itself when it starts.
            hvc(u32::from(Hypercall::Doorbell).into(), self.0);
        }
    }
}

/// Returns a section by its name: the one that the cell writes, or the other one; and its value in the directory.
///
/// # Errors
/// Returns `None` if there is no such section.
pub fn section(name: &str, writable: bool) -> Option<(Words, u64)> {
    let found = region(name).filter(|region| region.writable == writable)?;
    // SAFETY: the directory, which only the root writes, has regions of the cell's configuration. They are mapped as
    // long as the cell runs, and their words are atomics.
    let words = unsafe {
        core::slice::from_raw_parts(found.start as *const AtomicU64, found.bytes as usize / 8)
    };
    Some((words, found.value))
}

impl Network {
    /// Opens a network by the names of both sections. Returns `None` if the cell does not have it, or if it is open.
    #[must_use]
    pub fn open(own: &str, other: &str) -> Option<Self> {
        let (own, value) = section(own, true)?;
        let (other, received_by) = section(other, false)?;
        // Grows from each session to the next one.
        let number = NonZeroU64::new(read_register!("cntvct_el0") | 1)?;
        let [a, b, c, d, e, f, _, _] = value.to_le_bytes();
        let network = Self {
            link: Link::open(own, other, number)?,
            bell: Bell(value >> 48),
            address: [a, b, c, d, e, f],
            interrupt: received_by >> 48,
            received: [0; MOST_FRAME],
        };
        network.bell.ring_if(true);
        Some(network)
    }

    /// Follows the peer's state and returns it.
    pub fn update(&mut self) -> LinkState {
        let (state, ring) = self.link.update();
        self.bell.ring_if(ring);
        state
    }
}

/// A received frame.
#[derive(Debug)]
pub struct Received<'a>(&'a [u8]);

/// A frame to send.
#[derive(Debug)]
pub struct Sending<'a> {
    link: &'a mut Link<Words, Words>,
    bell: Bell,
}

impl phy::RxToken for Received<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, take: F) -> R {
        take(self.0)
    }
}

impl phy::TxToken for Sending<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, fill: F) -> R {
        let mut frame = [0; MOST_FRAME];
        let frame = &mut frame[..length.min(MOST_FRAME)];
        let result = fill(frame);
        // Without space or a peer the frame is lost, as on any network.
        if let FrameTransfer::Frame { ring, .. } = self.link.send(frame) {
            self.bell.ring_if(ring);
        }
        result
    }
}

impl phy::Device for Network {
    type RxToken<'a> = Received<'a>;
    type TxToken<'a> = Sending<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Received<'_>, Sending<'_>)> {
        let Self { link, bell, received, .. } = self;
        for _ in 0..MOST_SKIPPED {
            match link.receive(received) {
                FrameTransfer::Frame { bytes, ring } => {
                    bell.ring_if(ring);
                    let sending = Sending { link, bell: *bell };
                    return Some((Received(&received[..bytes]), sending));
                }
                FrameTransfer::Skipped { ring } => bell.ring_if(ring),
                FrameTransfer::Nothing | FrameTransfer::Down => return None,
            }
        }
        None
    }

    fn transmit(&mut self, _: Instant) -> Option<Sending<'_>> {
        let sending = Sending { link: &mut self.link, bell: self.bell };
        sending.link.has_space().then_some(sending)
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        // Ethernet's usual 1,500 bytes and the header.
        capabilities.max_transmission_unit = 1514;
        capabilities
    }
}
