// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Unions, differences and intersections of parts of the address space.

use super::Span;

/// Merges adjacent and overlapping parts; ascending.
pub(crate) fn united(mut spans: Vec<Span>) -> Vec<Span> {
    spans.retain(|span| span.bytes != 0);
    spans.sort_unstable();
    let mut all: Vec<Span> = Vec::new();
    for span in spans {
        match all.last_mut() {
            Some(last) if span.start <= last.end() => {
                *last = Span::between(last.start, last.end().max(span.end()));
            }
            _ => all.push(span),
        }
    }
    all
}

/// Returns the parts of `spans` that are in none of `taken`, ascending.
pub(crate) fn without(spans: &[Span], taken: &[Span]) -> Vec<Span> {
    let mut left = united(spans.to_vec());
    for hole in taken.iter().filter(|hole| hole.bytes != 0) {
        left = left
            .into_iter()
            .flat_map(|span| {
                if !span.meets(hole) {
                    return [span, Span::between(0, 0)];
                }
                [
                    Span::between(span.start, hole.start),
                    Span::between(hole.end(), span.end()),
                ]
            })
            .filter(|span| span.bytes != 0)
            .collect();
    }
    left
}

/// Returns the intersection.
pub(crate) fn common(one: &[Span], other: &[Span]) -> Vec<Span> {
    let outside = without(one, other);
    without(one, &outside)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(pairs: &[(u64, u64)]) -> Vec<Span> {
        let span = |(start, end): &(u64, u64)| Span::between(*start, *end);
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
