// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Traffic of the tests: TCP with each byte compared, echo requests, UDP.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::time::{Duration, Instant};

use crate::{Result, TIMEOUT};

/// Bytes that the receiver can compute (xorshift64, Marsaglia 2003).
struct Pattern(u64);

impl Pattern {
    fn fill(&mut self, buffer: &mut [u8]) {
        for bytes in buffer.chunks_mut(8) {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            bytes.copy_from_slice(&self.0.to_le_bytes()[..bytes.len()]);
        }
    }
}

fn send(stream: &mut TcpStream, seed: u64, mut bytes: usize) -> Result<()> {
    let mut pattern = Pattern(seed);
    let mut buffer = [0; 4096];
    while bytes > 0 {
        let part = &mut buffer[..bytes.min(4096)];
        pattern.fill(part);
        stream.write_all(part)?;
        bytes -= part.len();
    }
    Ok(())
}

fn expect(stream: &mut TcpStream, seed: u64, mut bytes: usize) -> Result<()> {
    let mut pattern = Pattern(seed);
    let (mut buffer, mut wanted) = ([0; 4096], [0; 4096]);
    while bytes > 0 {
        let size = bytes.min(4096);
        stream.read_exact(&mut buffer[..size])?;
        pattern.fill(&mut wanted[..size]);
        if buffer[..size] != wanted[..size] {
            return Err("other bytes than were sent".into());
        }
        bytes -= size;
    }
    Ok(())
}

/// Exchanges this number of bytes in each direction, and compares each.
pub(crate) fn exchange(address: &str, port: &str, bytes: usize) -> Result<()> {
    let address = SocketAddr::new(address.parse::<Ipv4Addr>()?.into(), port.parse()?);
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    stream.write_all(&(bytes as u64).to_le_bytes())?;
    send(&mut stream, 1, bytes)?;
    expect(&mut stream, 2, bytes)
}

/// Answers exchanges for ever.
pub(crate) fn answer(port: &str) -> Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port.parse()?))?;
    println!("answering");
    for stream in listener.incoming() {
        let mut stream = stream?;
        let mut size = [0; 8];
        let answered = stream
            .read_exact(&mut size)
            .map_err(Into::into)
            .and_then(|()| {
                let bytes = u64::from_le_bytes(size) as usize;
                expect(&mut stream, 1, bytes)?;
                send(&mut stream, 2, bytes)
            });
        if let Err(error) = answered {
            println!("answer: {error}");
        }
    }
    Ok(())
}
/// The internet checksum (RFC 1071).
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes
        .chunks(2)
        .map(|word| u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0)));
    let mut sum: u32 = words.sum();
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Sends echo requests and counts the answers with the same content (RFC 792).
pub(crate) fn ping(address: &str, count: u16) -> Result<u16> {
    let address: Ipv4Addr = address.parse()?;
    // SAFETY: the call takes numbers.
    let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP) };
    if socket < 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    // SAFETY: a new descriptor that nothing else owns.
    let socket = UdpSocket::from(unsafe { OwnedFd::from_raw_fd(socket) });
    socket.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut answered = 0;
    let mut shortest = Duration::from_secs(5);
    for number in 0..count {
        let mut packet = vec![8, 0, 0, 0, 0x12, 0x34];
        packet.extend(number.to_be_bytes());
        packet.extend((0..1400_u32).map(|byte| (byte as u16 ^ number) as u8));
        let sum = checksum(&packet).to_be_bytes();
        packet[2..4].copy_from_slice(&sum);
        let begin = Instant::now();
        socket.send_to(&packet, (address, 0))?;
        let mut buffer = [0; 2048];
        while let Ok((size, _)) = socket.recv_from(&mut buffer) {
            // After an IP header without options; other requests arrive too.
            if size == packet.len() + 20 && buffer[20] == 0 && buffer[24..size] == packet[4..] {
                answered += 1;
                shortest = shortest.min(begin.elapsed());
                break;
            }
        }
    }
    println!(
        "answered {answered} of {count}, at least {} us",
        shortest.as_micros()
    );
    Ok(answered)
}

/// Waits until an address answers.
pub(crate) fn reach(address: &str) -> Result<()> {
    let begin = Instant::now();
    while ping(address, 1)? == 0 {
        if begin.elapsed() > TIMEOUT {
            return Err(format!("{address} does not answer").into());
        }
    }
    Ok(())
}
/// Sends UDP packets and counts those that return unchanged.
pub(crate) fn echoes(address: &str, count: u32) -> Result<u32> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.set_read_timeout(Some(Duration::from_secs(2)))?;
    socket.connect((address, 7))?;
    let mut returned = 0;
    for number in 0..count {
        let packet: Vec<u8> = (0..1 + number * 37 % 1400)
            .map(|byte| (byte ^ number) as u8)
            .collect();
        socket.send(&packet)?;
        let mut buffer = [0; 2048];
        if socket
            .recv(&mut buffer)
            .is_ok_and(|size| buffer[..size] == packet)
        {
            returned += 1;
        }
    }
    Ok(returned)
}
