// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads a kernel image for arm64 (Linux, Documentation/arch/arm64/booting.rst) as distributions
//! ship it: uncompressed, compressed with gzip, or compressed in an EFI program.

use std::borrow::Cow;
use std::io::Read as _;

use super::LinuxError;

/// Offsets in the header of an image (booting.rst, "Call the kernel image").
const TEXT_OFFSET: usize = 8;
const IMAGE_SIZE: usize = 16;
const FLAGS: usize = 24;
const MAGIC: usize = 56;
/// Offsets in the header of a compressed EFI program (Linux,
/// drivers/firmware/efi/libstub/zboot-header.S).
const PACKED_MAGIC: usize = 4;
const PAYLOAD_OFFSET: usize = 8;
const PAYLOAD_SIZE: usize = 12;
const PACKING: usize = 24;

const GZIP: &[u8] = b"\x1f\x8b\x08";
/// Maximum size of a kernel in bytes.
const LARGEST: u64 = 512 << 20;

/// An image that is ready for loading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelImage {
    /// The uncompressed image.
    pub bytes: Vec<u8>,
    /// Offset from a multiple of 2 MiB, in bytes.
    pub text_offset: u64,
    /// Memory that it needs from there on, including its zeroed data, in bytes.
    pub memory_bytes: u64,
}

impl KernelImage {
    /// Reads an image and decompresses it if necessary.
    ///
    /// # Errors
    /// Returns an error if it is not an arm64 image, or is compressed with another method than
    /// gzip.
    pub fn read(file: &[u8]) -> Result<Self, LinuxError> {
        let bytes = unpacked(file)?;
        let wrong = |what: &str| LinuxError::Image(what.to_owned());
        if bytes.get(MAGIC..MAGIC + 4) != Some(b"ARM\x64") {
            return Err(wrong("it has no arm64 Image header"));
        }
        let number = |at: usize| word(&bytes, at, 8);
        let (Some(text_offset), Some(memory_bytes), Some(flags)) =
            (number(TEXT_OFFSET), number(IMAGE_SIZE), number(FLAGS))
        else {
            return Err(wrong("it is shorter than its header"));
        };
        if memory_bytes < bytes.len() as u64 || memory_bytes > LARGEST {
            return Err(wrong("its header has no memory size"));
        }
        if text_offset >= super::ALIGNMENT {
            return Err(wrong("its offset from the start of memory exceeds 2 MiB"));
        }
        if flags & 1 != 0 {
            return Err(wrong("it is for a big-endian machine"));
        }
        Ok(Self {
            bytes: bytes.into_owned(),
            text_offset,
            memory_bytes,
        })
    }
}

fn word(bytes: &[u8], at: usize, length: usize) -> Option<u64> {
    let bytes = bytes.get(at..at + length)?;
    Some(
        bytes
            .iter()
            .rev()
            .fold(0, |value, byte| value << 8 | u64::from(*byte)),
    )
}

fn unpacked(file: &[u8]) -> Result<Cow<'_, [u8]>, LinuxError> {
    let packed = if file.get(PACKED_MAGIC..PACKED_MAGIC + 4) == Some(b"zimg") {
        let packing = file.get(PACKING..PACKING + 8).unwrap_or_default();
        if !packing.starts_with(b"gzip\0") {
            let name = String::from_utf8_lossy(packing);
            let name = name.trim_end_matches('\0');
            return Err(LinuxError::Image(format!(
                "it is compressed with {name}; only gzip or an uncompressed Image is supported"
            )));
        }
        let location = word(file, PAYLOAD_OFFSET, 4).zip(word(file, PAYLOAD_SIZE, 4));
        location
            .and_then(|(start, bytes)| file.get(start as usize..(start + bytes) as usize))
            .ok_or_else(|| LinuxError::Image("it ends before its payload".to_owned()))?
    } else if file.starts_with(GZIP) {
        file
    } else {
        return Ok(Cow::Borrowed(file));
    };
    let mut kernel = Vec::new();
    let read = flate2::read::GzDecoder::new(packed)
        .take(LARGEST)
        .read_to_end(&mut kernel);
    read.map_err(|error| LinuxError::Image(format!("it cannot be decompressed: {error}")))?;
    Ok(Cow::Owned(kernel))
}

#[cfg(test)]
pub(super) mod tests {
    use std::io::Write as _;

    use super::*;

    /// Returns a kernel of this length that needs twice as much memory.
    pub(in crate::linux) fn image(length: usize) -> Vec<u8> {
        let mut image = vec![7; length];
        image[TEXT_OFFSET..TEXT_OFFSET + 8].fill(0);
        image[IMAGE_SIZE..IMAGE_SIZE + 8].copy_from_slice(&(2 * length as u64).to_le_bytes());
        image[FLAGS..FLAGS + 8].copy_from_slice(&0xa_u64.to_le_bytes());
        image[MAGIC..MAGIC + 4].copy_from_slice(b"ARM\x64");
        image
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packer.write_all(bytes).expect("packed");
        packer.finish().expect("packed")
    }

    fn efi(packing: &[u8; 8], payload: &[u8]) -> Vec<u8> {
        let mut file = b"MZ\0\0zimg".to_vec();
        file.extend(64_u32.to_le_bytes());
        file.extend((payload.len() as u32).to_le_bytes());
        file.extend([0; 8]);
        file.extend(packing);
        file.resize(64, 0);
        file.extend(payload);
        file
    }

    #[test]
    fn reads_images_with_every_packing() {
        let image = image(4096);
        let wanted = KernelImage {
            bytes: image.clone(),
            text_offset: 0,
            memory_bytes: 8192,
        };
        for file in [
            image.clone(),
            gzip(&image),
            efi(b"gzip\0\0\0\0", &gzip(&image)),
        ] {
            assert_eq!(KernelImage::read(&file).expect("an image"), wanted);
        }
    }

    #[test]
    fn refuses_invalid_images_with_the_reason() {
        let good = image(4096);
        let changed = |at: usize, value: u8| {
            let mut image = good.clone();
            image[at] = value;
            image
        };
        let packed = gzip(&good);
        for (file, reason) in [
            (vec![], "no arm64 Image header"),
            (b"\x7fELF".to_vec(), "no arm64 Image header"),
            (good[..40].to_vec(), "no arm64 Image header"),
            (changed(IMAGE_SIZE + 1, 0), "no memory size"),
            (changed(IMAGE_SIZE + 6, 1), "no memory size"),
            (changed(TEXT_OFFSET + 3, 1), "2 MiB"),
            (changed(FLAGS, 1), "big-endian"),
            (efi(b"zstd22\0\0", &good), "zstd22"),
            (efi(b"gzip\0\0\0\0", &packed)[..90].to_vec(), "ends before"),
            (packed[..packed.len() - 20].to_vec(), "decompressed"),
        ] {
            let error = KernelImage::read(&file).expect_err(reason).to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
