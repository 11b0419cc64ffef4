// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Formatting of text: counts, quantiles and factors, external texts, lines of limited width.

/// Formats a count with its noun: `1 warning`, `2 warnings`. The plural of `one` ends with `s`.
#[must_use]
pub fn plural(count: impl std::fmt::Display, one: &str) -> String {
    let count = count.to_string();
    let ending = if count == "1" { "" } else { "s" };
    format!("{count} {one}{ending}")
}

/// Formats a count with its thousands apart: `1 234 567`.
#[must_use]
pub fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// Formats a quantile as a percentile: `p50`, `p99.9`.
#[must_use]
pub fn quantile_name(quantile: f64) -> String {
    // Six decimals of a percentage, without trailing zeros: 0.99999 × 100 is not exact.
    let text = format!("{:.6}", quantile * 100.0);
    format!("p{}", text.trim_end_matches('0').trim_end_matches('.'))
}

/// Formats a factor with two or three significant decimals.
#[must_use]
pub fn factor(value: f64) -> String {
    if value >= 100.0 {
        format!("{value:.0}")
    } else if value >= 10.0 {
        format!("{value:.1}")
    } else if value >= 0.1 {
        format!("{value:.2}")
    } else {
        format!("{value:.3}")
    }
}

/// Returns an external text as one printable line: control characters and those that change the
/// direction of text (Unicode annex 9, 2.1 to 2.6) become visible, tabs and line ends become spaces.
#[must_use]
pub fn clean(text: &str) -> String {
    text.chars()
        .map(|character| {
            if matches!(character, '\n' | '\r' | '\t') {
                ' '
            } else if steers(character) {
                '\u{fffd}'
            } else {
                character
            }
        })
        .collect()
}

/// Returns whether a character is invisible and changes the displayed text.
fn steers(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{202a}'..='\u{202e}'
                | '\u{2066}'..='\u{2069}'
                | '\u{200e}'
                | '\u{200f}'
                | '\u{061c}'
        )
}

/// Wraps a text into at least one line of at most `width` characters. `first` and `rest` are the
/// prefixes of the first and the other lines and count too. A longer word stays whole, so that a
/// command can be copied.
#[must_use]
pub fn wrapped(first: &str, rest: &str, text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![first.to_owned()];
    let mut used = first.chars().count();
    let mut empty = true;
    for word in text
        .split([' ', '\n', '\t'])
        .filter(|word| !word.is_empty())
    {
        let length = word.chars().count();
        if !empty && used + 1 + length > width {
            lines.push(rest.to_owned());
            used = rest.chars().count();
            empty = true;
        }
        if let Some(line) = lines.last_mut() {
            if !empty {
                line.push(' ');
                used += 1;
            }
            line.push_str(word);
        }
        used += length;
        empty = false;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_figures() {
        for (count, text) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1 000"),
            (1_234_567, "1 234 567"),
        ] {
            assert_eq!(grouped(count), text);
        }
        for (quantile, name) in [
            (0.5, "p50"),
            (0.99, "p99"),
            (0.999, "p99.9"),
            (0.99999, "p99.999"),
            (0.999_999, "p99.9999"),
        ] {
            assert_eq!(quantile_name(quantile), name);
        }
        for (value, text) in [
            (123.4, "123"),
            (12.34, "12.3"),
            (1.234, "1.23"),
            (0.1, "0.10"),
            (0.0123, "0.012"),
            (0.0, "0.000"),
        ] {
            assert_eq!(factor(value), text);
        }
    }
    use proptest::prelude::*;

    #[test]
    fn formats_singular_and_plural() {
        let counted: Vec<String> = [0, 1, 2].map(|count| plural(count, "warning")).to_vec();
        assert_eq!(counted, ["0 warnings", "1 warning", "2 warnings"]);
    }

    #[test]
    fn makes_control_characters_visible() {
        assert_eq!(
            clean("a\u{1b}[1m\u{202e}b\u{200f}\té"),
            "a\u{fffd}[1m\u{fffd}b\u{fffd} é"
        );
    }

    #[test]
    fn wraps_lines_at_words() {
        let long = "x".repeat(20);
        assert_eq!(
            wrapped("- ", "  ", &format!("a b {long} c"), 5),
            ["- a b".to_owned(), format!("  {long}"), "  c".to_owned()]
        );
        assert_eq!(wrapped("- ", "  ", "", 5), ["- "]);
    }

    proptest! {
        #[test]
        fn wrapping_loses_no_word_and_keeps_the_width(text in "[a-z ]{0,200}", width in 5usize..60) {
            let lines = wrapped("", "", &text, width);
            let words: Vec<&str> = text.split_whitespace().collect();
            let joined = lines.join(" ");
            prop_assert_eq!(joined.split_whitespace().collect::<Vec<_>>(), words);
            for line in &lines {
                prop_assert!(line.chars().count() <= width || !line.contains(' '), "{}", line);
            }
        }
    }
}
