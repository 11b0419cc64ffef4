// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes text from its end, which suits numbers: their digits are computed from the last one.

/// A byte range that is filled from its end. Text that does not fit is left out.
#[derive(Debug)]
pub(super) struct Backward<'a> {
    text: &'a mut [u8],
    /// Start of the written text; at most the length of `text`.
    at: usize,
    /// All but the last two digits of the first number of the last pair, and their text from the
    /// right. They are mostly equal in adjacent buckets.
    high: u64,
    high_text: [u8; 8],
    high_length: usize,
}

/// "00" to "99".
const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[0; 2]; 100];
    let mut number = 0;
    while number < 100 {
        pairs[number] = [b'0' + (number / 10) as u8, b'0' + (number % 10) as u8];
        number += 1;
    }
    pairs
};

impl Backward<'_> {
    /// Maximum number of digits of a number.
    pub(super) const LONGEST_NUMBER: usize = 20;

    /// Maximum length of a [`Backward::pair`]: two numbers, two brackets, two commas.
    pub(super) const LONGEST_PAIR: usize = 2 * Self::LONGEST_NUMBER + 4;

    /// Appends to `out` the text that `write` writes into at most `space` bytes.
    pub(super) fn append(out: &mut Vec<u8>, space: usize, write: impl FnOnce(&mut Backward<'_>)) {
        let begin = out.len();
        out.resize(begin + space, 0);
        let text = &mut out[begin..];
        let mut backward = Backward {
            at: space,
            text,
            high: u64::MAX,
            high_text: [0; 8],
            high_length: 0,
        };
        write(&mut backward);
        let Backward { text, at, .. } = backward;
        text.copy_within(at.., 0);
        out.truncate(begin + space - at);
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        if let Some(at) = self.at.checked_sub(bytes.len()) {
            self.text[at..self.at].copy_from_slice(bytes);
            self.at = at;
        }
    }

    pub(super) fn number(&mut self, number: u64) {
        if self.at >= Self::LONGEST_NUMBER {
            // SAFETY: the longest number fits.
            self.at = unsafe { self.digits(self.at, number) };
        }
    }

    /// Writes `[first,second],`.
    #[inline(always)]
    pub(super) fn pair(&mut self, first: u64, second: u64) {
        if self.at < Self::LONGEST_PAIR {
            return;
        }
        // SAFETY: the longest pair fits, and each position is below the last.
        unsafe {
            let mut at = self.at - 2;
            self.put(at, *b"],");
            at = self.digits(at, second) - 1;
            self.put(at, *b",");
            at = self.repeated_digits(at, first) - 1;
            self.put(at, *b"[");
            self.at = at;
        }
    }

    /// # Safety
    /// `at` and the end of the written bytes lie within the text.
    #[inline(always)]
    unsafe fn put<const LENGTH: usize>(&mut self, at: usize, bytes: [u8; LENGTH]) {
        debug_assert!(at + LENGTH <= self.text.len());
        // SAFETY: guaranteed by the caller; an array of bytes needs no alignment.
        unsafe {
            self.text
                .as_mut_ptr()
                .add(at)
                .cast::<[u8; LENGTH]>()
                .write(bytes)
        };
    }

    /// Does the same as [`Self::digits`], faster if the number is similar to the last one.
    ///
    /// # Safety
    /// As for [`Self::digits`].
    #[inline(always)]
    unsafe fn repeated_digits(&mut self, end: usize, number: u64) -> usize {
        let high = number / 100;
        // SAFETY: guaranteed by the caller; 8 bytes are less than the space for a number. The bytes
        // beyond the digits are overwritten by the text before them.
        unsafe {
            if high == 0 {
                return self.digits(end, number);
            }
            self.put(end - 2, PAIRS[(number % 100) as usize]);
            let end = end - 2;
            if high == self.high {
                self.put(end - 8, self.high_text);
                return end - self.high_length;
            }
            let begin = self.digits(end, high);
            if end - begin <= 8 {
                self.high = high;
                self.high_length = end - begin;
                self.high_text.copy_from_slice(&self.text[end - 8..end]);
            }
            begin
        }
    }

    /// Writes `number` so that it ends before `end`, and returns where it begins.
    ///
    /// # Safety
    /// `end` lies within the text, at least [`Self::LONGEST_NUMBER`] from its start.
    #[inline(always)]
    unsafe fn digits(&mut self, mut end: usize, mut number: u64) -> usize {
        // SAFETY: the longest number fits.
        unsafe {
            while number >= 100 {
                end -= 2;
                self.put(end, PAIRS[(number % 100) as usize]);
                number /= 100;
            }
            if number >= 10 {
                end -= 2;
                self.put(end, PAIRS[number as usize]);
            } else {
                end -= 1;
                self.put(end, [b'0' + number as u8]);
            }
        }
        end
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn formats_numbers_like_the_standard_library(first: u64, second: u64, shift in 0u32..64) {
            let (first, second) = (first >> shift, second >> (63 - shift));
            let mut out = b"before ".to_vec();
            Backward::append(&mut out, 200, |text| {
                text.bytes(b" after");
                text.pair(first, second);
                text.number(first);
            });
            prop_assert_eq!(String::from_utf8(out).expect("text"), format!("before {first}[{first},{second}], after"));
        }

        #[test]
        fn formats_adjacent_values_like_the_standard_library(start in 0u64..2_000_000_000_000, steps in proptest::collection::vec(0u64..300, 0..50)) {
            let mut numbers = vec![start];
            for step in steps {
                numbers.push(numbers[numbers.len() - 1] + step);
            }
            let mut out = Vec::new();
            Backward::append(&mut out, 60 * Backward::LONGEST_PAIR, |text| {
                for number in numbers.iter().rev() {
                    text.pair(*number, 7);
                }
            });
            let expected: String = numbers.iter().map(|number| format!("[{number},7],")).collect();
            prop_assert_eq!(String::from_utf8(out).expect("text"), expected);
        }

        #[test]
        fn leaves_out_text_that_does_not_fit(space in 0usize..100, numbers in proptest::collection::vec(any::<u64>(), 0..20)) {
            let mut out = Vec::new();
            Backward::append(&mut out, space, |text| {
                for number in numbers {
                    text.pair(number, number);
                    text.number(number);
                    text.bytes(b"]]");
                }
            });
            prop_assert!(out.len() <= space);
        }
    }
}
