// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads the version of a kernel image.

use std::path::Path;

use crate::MachineRoot;

/// Offset of the version pointer in an x86 image: it is at 0x20e, less 0x200
/// (Documentation/arch/x86/boot.rst, "kernel_version").
const VERSION_POINTER: usize = 0x20e;
/// The signature of an x86 image, at 0x202.
const MARK: &[u8] = b"HdrS";
/// The beginning of the version text in uncompressed images.
const BANNER: &[u8] = b"Linux version ";

/// Returns whether the kernel in this file is PREEMPT_RT, or `None` if its version cannot be read, as
/// in a compressed image of another architecture.
pub(super) fn is_real_time(root: &MachineRoot, path: &Path) -> Option<bool> {
    let inside = path.to_str()?.trim_start_matches('/');
    kernel_image_version(&root.bytes(inside)?).map(|version| version.contains("PREEMPT_RT"))
}

/// Returns the version in a kernel image as `uname -rv` prints it, or `None` if there is none: of an
/// x86 image from its header, of an uncompressed one from its version text. The first 128 KiB of an
/// x86 image suffice.
#[must_use]
pub fn kernel_image_version(image: &[u8]) -> Option<String> {
    x86_version(image).or_else(|| {
        let at = image
            .windows(BANNER.len())
            .position(|window| window == BANNER)?;
        text(image, at + BANNER.len())
    })
}

fn x86_version(image: &[u8]) -> Option<String> {
    if image.get(0x202..0x206) != Some(MARK) {
        return None;
    }
    let pointer = image.get(VERSION_POINTER..VERSION_POINTER + 2)?;
    let pointer = u16::from_le_bytes(pointer.try_into().ok()?);
    if pointer == 0 {
        return None;
    }
    text(image, usize::from(pointer) + 0x200)
}

/// Returns the text up to a line feed or NUL byte, limited to the length of a version.
fn text(image: &[u8], from: usize) -> Option<String> {
    let rest = image.get(from..)?;
    let end = rest.iter().position(|byte| *byte == 0 || *byte == b'\n')?;
    Some(String::from_utf8_lossy(rest.get(..end.min(512))?).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_version_of_images() {
        let mut image = vec![0; 0x1000];
        assert_eq!(kernel_image_version(&image), None);
        image[0x202..0x206].copy_from_slice(MARK);
        assert_eq!(kernel_image_version(&image), None);
        image[0x20e..0x210].copy_from_slice(&0x300u16.to_le_bytes());
        let text = b"6.1.0-40-rt-amd64 (x) #1 SMP PREEMPT_RT Debian";
        image[0x500..0x500 + text.len()].copy_from_slice(text);
        assert!(kernel_image_version(&image).is_some_and(|version| version.contains("PREEMPT_RT")));
        // The pointer is outside the file.
        image[0x20e..0x210].copy_from_slice(&0xffffu16.to_le_bytes());
        assert_eq!(kernel_image_version(&image), None);
        let arm = b"MZ....ARM\x64...Linux version 6.1.0 #1 SMP PREEMPT\n\0";
        assert_eq!(
            kernel_image_version(arm).as_deref(),
            Some("6.1.0 #1 SMP PREEMPT")
        );
        assert_eq!(kernel_image_version(b"Linux version without end"), None);
    }
}
