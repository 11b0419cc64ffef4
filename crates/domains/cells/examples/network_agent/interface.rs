// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The network interface with a peer: its address, its counts, and what ethtool reports of it.

use std::ffi::c_void;
use std::fs;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use crate::{Result, TIMEOUT};

/// Returns the name of the interface with this peer.
fn interface(peer: &str) -> Result<String> {
    let begin = Instant::now();
    loop {
        for entry in fs::read_dir("/sys/class/net")? {
            let path = entry?.path();
            let alias = fs::read_to_string(path.join("ifalias")).unwrap_or_default();
            if alias.trim() == peer {
                let name = path.file_name().unwrap_or_default();
                return Ok(name.to_string_lossy().into_owned());
            }
        }
        if begin.elapsed() > TIMEOUT {
            return Err(format!("no interface with {peer}").into());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Makes a call of netdevice(7) for an interface.
fn call(name: &str, request: u64, value: impl FnOnce(&mut libc::ifreq)) -> Result<()> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    // SAFETY: numbers and addresses, for which zeros are valid.
    let mut argument: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in argument.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as _;
    }
    value(&mut argument);
    // SAFETY: these commands take this structure.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), request as _, &raw mut argument) };
    (result == 0)
        .then_some(())
        .ok_or_else(|| std::io::Error::last_os_error().into())
}

/// Sets an address with 24 bits of network, and turns the interface on.
pub(crate) fn up(peer: &str, address: &str) -> Result<()> {
    let name = interface(peer)?;
    let address: Ipv4Addr = address.parse()?;
    let internet = |octets: [u8; 4]| {
        let mut data = [0; 14];
        data[2..6].copy_from_slice(&octets.map(|octet| octet as _));
        libc::sockaddr {
            sa_family: libc::AF_INET as _,
            sa_data: data,
        }
    };
    call(&name, libc::SIOCSIFADDR, |argument| {
        argument.ifr_ifru.ifru_addr = internet(address.octets());
    })?;
    call(&name, libc::SIOCSIFNETMASK, |argument| {
        argument.ifr_ifru.ifru_netmask = internet([255, 255, 255, 0]);
    })?;
    call(&name, libc::SIOCSIFFLAGS, |argument| {
        argument.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as _;
    })?;
    println!("up {name}");
    Ok(())
}

/// Waits until the interface has a carrier or none.
pub(crate) fn has_carrier(peer: &str, wanted: bool) -> Result<bool> {
    let path = format!("/sys/class/net/{}/carrier", interface(peer)?);
    let begin = Instant::now();
    while begin.elapsed() < TIMEOUT {
        let text = fs::read_to_string(&path).unwrap_or_default();
        if (text.trim() == "1") == wanted {
            return Ok(true);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(false)
}

/// Returns a count of the interface.
pub(crate) fn count_of(peer: &str, file: &str) -> Result<u64> {
    let name = interface(peer)?;
    let text = fs::read_to_string(format!("/sys/class/net/{name}/statistics/{file}"))?;
    Ok(text.trim().parse()?)
}

/// Prints the packets that the interface has received and sent.
pub(crate) fn show_packets(peer: &str) -> Result<()> {
    let both = count_of(peer, "rx_packets")? + count_of(peer, "tx_packets")?;
    println!("{both}");
    Ok(())
}

/// What ethtool reports of the interface (Linux, include/uapi/linux/ethtool.h).
#[derive(Debug)]
pub(crate) struct Ethtool {
    pub(crate) driver: String,
    pub(crate) bus: String,
    pub(crate) has_link: bool,
    pub(crate) is_full_duplex: bool,
    /// Names and values, as `ethtool -S` prints them.
    pub(crate) counts: Vec<(String, u64)>,
}

impl Ethtool {
    const DRIVER_BYTES: usize = 196;
    const NAME_BYTES: usize = 32;

    /// Makes the calls of `ethtool`, `ethtool -i` and `ethtool -S`.
    pub(crate) fn of(peer: &str) -> Result<Self> {
        let name = interface(peer)?;
        // Each command begins with its number, and some with the number of entries.
        let ask = |bytes: usize, head: &[u32]| -> Result<Vec<u8>> {
            let mut words = vec![0_u64; bytes.div_ceil(8)];
            let content = words.as_mut_ptr().cast::<u8>();
            for (index, word) in head.iter().enumerate() {
                // SAFETY: within the words; each command has this many bytes at least.
                unsafe { content.cast::<u32>().add(index).write(*word) };
            }
            call(&name, libc::SIOCETHTOOL as _, |argument| {
                argument.ifr_ifru.ifru_data = content.cast::<c_void>().cast();
            })?;
            Ok(words.into_iter().flat_map(u64::to_ne_bytes).collect())
        };
        let text = |bytes: &[u8]| {
            let end = bytes.iter().position(|byte| *byte == 0);
            String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]).into_owned()
        };
        let number = |bytes: &[u8], at: usize| {
            let word = bytes[at..].first_chunk().copied().unwrap_or_default();
            u32::from_ne_bytes(word)
        };
        // ETHTOOL_GDRVINFO, ETHTOOL_GLINK, ETHTOOL_GSET.
        let driver = ask(Self::DRIVER_BYTES, &[0x3])?;
        let link = ask(8, &[0xa])?;
        let settings = ask(44, &[0x1])?;
        let counted = number(&driver, 180) as usize;
        // ETHTOOL_GSTRINGS of ETH_SS_STATS, ETHTOOL_GSTATS.
        let names = ask(12 + counted * Self::NAME_BYTES, &[0x1b, 1, counted as u32])?;
        let values = ask(8 + counted * 8, &[0x1d, counted as u32])?;
        let names = names[12..].chunks_exact(Self::NAME_BYTES).map(text);
        let values = values[8..].as_chunks().0.iter();
        Ok(Self {
            driver: text(&driver[4..36]),
            bus: text(&driver[100..132]),
            has_link: number(&link, 4) == 1,
            is_full_duplex: settings[14] == 1,
            counts: names
                .zip(values.map(|value| u64::from_ne_bytes(*value)))
                .collect(),
        })
    }

    /// Returns a count by its name.
    pub(crate) fn count(&self, name: &str) -> Option<u64> {
        let mut counts = self.counts.iter();
        counts
            .find(|(known, _)| known == name)
            .map(|(_, count)| *count)
    }
}
