// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Unions, differences and intersections of parts of the address space.

use super::AddressSpan;

/// Merges adjacent and overlapping parts; ascending.
pub(crate) fn united(mut spans: Vec<AddressSpan>) -> Vec<AddressSpan> {
    spans.retain(|span| span.bytes != 0);
    spans.sort_unstable();
    let mut all: Vec<AddressSpan> = Vec::new();
    for span in spans {
        match all.last_mut() {
            Some(last) if span.start <= last.end() => {
                *last = AddressSpan::between(last.start, last.end().max(span.end()));
            }
            _ => all.push(span),
        }
    }
    all
}

/// Returns the parts of `spans` that are in none of `taken`, ascending.
pub(crate) fn without(spans: &[AddressSpan], taken: &[AddressSpan]) -> Vec<AddressSpan> {
    let mut left = united(spans.to_vec());
    for hole in taken.iter().filter(|hole| hole.bytes != 0) {
        left = left
            .into_iter()
            .flat_map(|span| {
                if !span.meets(hole) {
                    return [span, AddressSpan::between(0, 0)];
                }
                [
                    AddressSpan::between(span.start, hole.start),
                    AddressSpan::between(hole.end(), span.end()),
                ]
            })
            .filter(|span| span.bytes != 0)
            .collect();
    }
    left
}

/// Returns the intersection.
pub(crate) fn common(one: &[AddressSpan], other: &[AddressSpan]) -> Vec<AddressSpan> {
    let outside = without(one, other);
    without(one, &outside)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(pairs: &[(u64, u64)]) -> Vec<AddressSpan> {
        let span = |(start, end): &(u64, u64)| AddressSpan::between(*start, *end);
        pairs.iter().map(span).collect()
    }

    #[test]
    fn computes_union_difference_and_intersection() {
        let all = spans(&[(10, 20), (0, 10), (30, 40), (35, 50)]);
        assert_eq!(united(all.clone()), spans(&[(0, 20), (30, 50)]));
        let left = without(&all, &spans(&[(5, 8), (15, 32), (49, 60)]));
        assert_eq!(left, spans(&[(0, 5), (8, 15), (32, 49)]));
        assert_eq!(without(&all, &spans(&[(0, 100)])), []);
        let both = common(&all, &spans(&[(5, 8), (15, 32), (49, 60)]));
        assert_eq!(both, spans(&[(5, 8), (15, 20), (30, 32), (49, 50)]));
    }
}
