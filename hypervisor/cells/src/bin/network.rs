// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Answers pings, and UDP packets to port 7 with the same content (RFC 862), on its network with the root, or with a cell
//! named `near` or `far`. The lower half of the argument is its IPv4 address, such as 0x0a010002 for 10.1.0.2; the network
//! has 24 bits. If the upper half is an address, it sends packets there instead, each when the one before has returned
//! unchanged, or after a second without one. It sleeps while it has nothing to do.
#![no_std]
#![no_main]

use rampart_hypervisor_cells::network::Network;
use rampart_hypervisor_cells::{
    TIMER, Word, acknowledge, arm_timer, count, enable, enable_shared, end, read_register,
    set_shared_word, wait,
};
use smoltcp::iface::{Config, Interface, SocketSet, SocketStorage};
use smoltcp::socket::udp;
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, IpCidr, Ipv4Address, Ipv4Cidr};

const PORT: u16 = 7;
const PACKET: usize = 1472;

/// The sections of the network: its own, and that of the peer.
const SECTIONS: [(&str, &str); 3] = [
    ("network.root", "network.root.in"),
    ("network.near", "network.near.in"),
    ("network.far", "network.far.in"),
];

/// Fills the packet with this number and returns its size.
fn fill(packet: &mut [u8; PACKET], number: u64) -> usize {
    let bytes = 1 + (number * 37 % 1400) as usize;
    for (index, byte) in packet[..bytes].iter_mut().enumerate() {
        *byte = (index as u64 ^ number) as u8;
    }
    bytes
}

fn now() -> Instant {
    let (ticks, second) = (read_register!("cntvct_el0"), read_register!("cntfrq_el0"));
    Instant::from_micros((u128::from(ticks) * 1_000_000 / u128::from(second)) as i64)
}

#[unsafe(no_mangle)]
extern "C" fn cell_main(argument: u64) {
    let mut sections = SECTIONS.into_iter();
    let Some(mut network) = sections.find_map(|(own, other)| Network::open(own, other)) else {
        count(Word::Exceptions);
        return;
    };
    let mut config = Config::new(EthernetAddress(network.address).into());
    config.random_seed = read_register!("cntvct_el0");
    let mut interface = Interface::new(config, &mut network, now());
    let address = Ipv4Address::from((argument as u32).to_be_bytes());
    interface.update_ip_addrs(|all| {
        // It has space for one.
        let _ = all.push(IpCidr::Ipv4(Ipv4Cidr::new(address, 24)));
    });
    let (mut metadata_in, mut metadata_out) =
        ([udp::PacketMetadata::EMPTY; 4], [udp::PacketMetadata::EMPTY; 4]);
    let (mut bytes_in, mut bytes_out) = ([0; 4 * PACKET], [0; 4 * PACKET]);
    let mut socket = udp::Socket::new(
        udp::PacketBuffer::new(&mut metadata_in[..], &mut bytes_in[..]),
        udp::PacketBuffer::new(&mut metadata_out[..], &mut bytes_out[..]),
    );
    if socket.bind(PORT).is_err() {
        return;
    }
    let mut storage = [SocketStorage::EMPTY; 1];
    let mut sockets = SocketSet::new(&mut storage[..]);
    let echo = sockets.add(socket);
    // Interrupts stay masked: a pending one ends WFI all the same.
    enable(TIMER);
    enable_shared(network.interrupt, true);
    arm_timer(read_register!("cntfrq_el0"));
    count(Word::Begun);
    let peer = Ipv4Address::from(((argument >> 32) as u32).to_be_bytes());
    let is_sender = !peer.is_unspecified();
    // The last packet, and that of a second ago.
    let (mut number, mut seen) = (0, 0);
    loop {
        set_shared_word(Word::Result, network.update() as u64);
        interface.poll(now(), &mut network, &mut sockets);
        let socket = sockets.get_mut::<udp::Socket<'_>>(echo);
        let mut packet = [0; PACKET];
        if let Ok((bytes, sender)) = socket.recv_slice(&mut packet) {
            let packet = &packet[..bytes];
            let mut sent = [0; PACKET];
            let mut is_packet = |number| {
                let bytes = fill(&mut sent, number);
                sent[..bytes] == *packet
            };
            if !is_sender {
                // Without space it is lost.
                let _ = socket.send_slice(packet, sender);
                count(Word::Message);
            } else if is_packet(number) {
                number += 1;
                let bytes = fill(&mut sent, number);
                let _ = socket.send_slice(&sent[..bytes], sender);
                count(Word::Message);
            } else if !is_packet(number.wrapping_sub(1)) {
                // Not even one that was given up.
                count(Word::Unexpected);
            }
            continue;
        }
        // The last look at the ring has set its mark, so that a frame that arrives from then on rings.
        wait();
        let interrupt = acknowledge();
        if interrupt == TIMER {
            arm_timer(read_register!("cntfrq_el0"));
            count(Word::Interrupts);
            if is_sender && number == seen {
                number += 1;
                let bytes = fill(&mut packet, number);
                let _ = socket.send_slice(&packet[..bytes], (peer, PORT));
            }
            seen = number;
        } else if interrupt == network.interrupt {
            count(Word::Device);
        }
        end(interrupt);
    }
}

#[unsafe(no_mangle)]
extern "C" fn cell_exception() {
    count(Word::Exceptions);
}
