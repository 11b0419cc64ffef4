// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Unpacks the kernel image. To unpack it under emulation would take three seconds of every boot.

use std::io::Read;

use lzma_rust2::XzReader;

use super::architecture::KernelForm;
use super::error::SimError;

/// Offsets in the header of a bzImage (Linux, Documentation/arch/x86/boot.rst, "The Real-Mode
/// Kernel Header").
const SETUP_SECTORS: usize = 0x1f1;
const MAGIC: usize = 0x202;
const PAYLOAD_OFFSET: usize = 0x248;
const PAYLOAD_LENGTH: usize = 0x24c;

/// Offset of the magic number in the header of an arm64 image (Linux,
/// Documentation/arch/arm64/booting.rst, "Call the kernel image").
const ARM64_MAGIC: usize = 56;

const XZ: &[u8] = b"\xfd7zXZ\0";
const GZIP: &[u8] = b"\x1f\x8b\x08";
const ELF: &[u8] = b"\x7fELF";

/// Largest accepted kernel in bytes.
const LARGEST: u64 = 512 << 20;

/// Returns the kernel inside a boot image. Returns `None` if the image has to be booted as it is,
/// because it is not compressed or the format is unknown.
pub(super) fn unpacked(form: KernelForm, image: &[u8]) -> Result<Option<Vec<u8>>, SimError> {
    match form {
        KernelForm::BzImage => unpack_bzimage(image),
        KernelForm::Image => unpack_image(image),
    }
}

/// Unpacks an arm64 image. The emulator boots images with and without gzip; unpacking here saves
/// the time at each boot.
fn unpack_image(image: &[u8]) -> Result<Option<Vec<u8>>, SimError> {
    let kernel = if image.starts_with(GZIP) {
        Some(unpack(flate2::read::GzDecoder::new(image))?)
    } else {
        None
    };
    let bytes = kernel.as_deref().unwrap_or(image);
    if bytes.get(ARM64_MAGIC..ARM64_MAGIC + 4) != Some(b"ARM\x64") {
        return Err(SimError::Image(
            "the kernel of its package is not an arm64 Image".to_owned(),
        ));
    }
    Ok(kernel)
}

fn unpack_bzimage(image: &[u8]) -> Result<Option<Vec<u8>>, SimError> {
    let Some(payload) = payload(image) else {
        return Err(SimError::Image(
            "the kernel of its package is not a bzImage".to_owned(),
        ));
    };
    let kernel = if payload.starts_with(XZ) {
        unpack(XzReader::new(payload, false))?
    } else if payload.starts_with(GZIP) {
        unpack(flate2::read::GzDecoder::new(payload))?
    } else {
        return Ok(None);
    };
    Ok(kernel.starts_with(ELF).then_some(kernel))
}

fn unpack(packed: impl Read) -> Result<Vec<u8>, SimError> {
    let mut kernel = Vec::new();
    let read = packed.take(LARGEST).read_to_end(&mut kernel);
    read.map_err(|error| SimError::Image(format!("cannot unpack its kernel: {error}")))?;
    Ok(kernel)
}

fn payload(image: &[u8]) -> Option<&[u8]> {
    let number = |at: usize| -> Option<usize> {
        let bytes = image.get(at..at + 4)?;
        usize::try_from(u32::from_le_bytes(bytes.try_into().ok()?)).ok()
    };
    if image.get(MAGIC..MAGIC + 4)? != b"HdrS" {
        return None;
    }
    // Zero sectors mean four, for very old boot loaders.
    let sectors = match image.get(SETUP_SECTORS)? {
        0 => 4,
        &sectors => usize::from(sectors),
    };
    let start = ((sectors + 1) * 512).checked_add(number(PAYLOAD_OFFSET)?)?;
    image.get(start..start.checked_add(number(PAYLOAD_LENGTH)?)?)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn bzimage(payload: &[u8]) -> Vec<u8> {
        let mut image = vec![0; 1024 + 16];
        image[SETUP_SECTORS] = 1;
        image[MAGIC..MAGIC + 4].copy_from_slice(b"HdrS");
        image[PAYLOAD_OFFSET..PAYLOAD_OFFSET + 4].copy_from_slice(&16_u32.to_le_bytes());
        let length = u32::try_from(payload.len()).expect("short");
        image[PAYLOAD_LENGTH..PAYLOAD_LENGTH + 4].copy_from_slice(&length.to_le_bytes());
        image.extend_from_slice(payload);
        image
    }

    #[test]
    fn unpacks_the_kernel() {
        let kernel = b"\x7fELF and so on".to_vec();
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&kernel).expect("packed");
        let image = bzimage(&gzip.finish().expect("packed"));
        let unpacked = unpacked(KernelForm::BzImage, &image).expect("unpacked");
        assert_eq!(unpacked, Some(kernel));
    }

    #[test]
    fn returns_none_for_an_unknown_format_and_refuses_other_files() {
        let image = bzimage(b"\x28\xb5\x2f\xfd zstd");
        assert_eq!(unpacked(KernelForm::BzImage, &image).expect("left"), None);
        for bad in [&b"short"[..], &[0; 4096], &image[..1030]] {
            assert!(unpacked(KernelForm::BzImage, bad).is_err());
        }
        let mut broken = bzimage(b"\xfd7zXZ\0 but not really");
        broken.truncate(1024 + 16 + 21);
        assert!(unpacked(KernelForm::BzImage, &broken).is_err());
    }

    #[test]
    fn unpacks_an_arm64_image_if_compressed() {
        let mut image = vec![0; 100];
        image[ARM64_MAGIC..ARM64_MAGIC + 4].copy_from_slice(b"ARM\x64");
        let as_it_is = unpacked(KernelForm::Image, &image).expect("an image");
        assert_eq!(as_it_is, None);
        let pack = |bytes: &[u8]| {
            let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            gzip.write_all(bytes).expect("packed");
            gzip.finish().expect("packed")
        };
        let from_packed = unpacked(KernelForm::Image, &pack(&image)).expect("an image");
        assert_eq!(from_packed, Some(image.clone()));
        image[ARM64_MAGIC] = 0;
        for bad in [image.clone(), pack(&image), image[..40].to_vec()] {
            assert!(unpacked(KernelForm::Image, &bad).is_err());
        }
        let whole = pack(&vec![7; 4096]);
        assert!(unpacked(KernelForm::Image, &whole[..whole.len() - 12]).is_err());
    }
}
