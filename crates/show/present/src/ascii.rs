// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Text for a terminal whose locale is not UTF-8.

/// Returns a text in ASCII. Each character becomes one character, so that columns stay aligned; `≤ 3` becomes `<=3`.
#[must_use]
pub fn ascii(text: &str) -> String {
    let text = ["≤ ", "≤\u{a0}"]
        .iter()
        .fold(text.to_owned(), |text, from| text.replace(from, "<="));
    let text = ["≥ ", "≥\u{a0}"]
        .iter()
        .fold(text, |text, from| text.replace(from, ">="));
    text.chars().map(character).collect()
}

fn character(of: char) -> char {
    match of {
        of if of.is_ascii() => of,
        '│' | '┆' | '┃' => '|',
        '─' | '╌' | '━' | '–' | '—' | '−' => '-',
        '═' | '╪' => '=',
        '┌' | '┐' | '└' | '┘' | '├' | '┤' | '┬' | '┴' | '┼' | '╞' | '╡' => {
            '+'
        }
        'µ' | 'μ' => 'u',
        'τ' => 't',
        'σ' => 's',
        '×' => 'x',
        '÷' => '/',
        '·' | '…' => '.',
        '≤' => '<',
        '≥' => '>',
        '≈' | '±' => '~',
        '↑' => '^',
        '↓' | '✓' => 'v',
        '✗' => 'x',
        '●' => '*',
        '○' => 'o',
        '→' => '>',
        '←' => '<',
        '“' | '”' => '"',
        '‘' | '’' => '\'',
        '█' | '▓' | '■' => '#',
        '\u{a0}' | '\u{202f}' => ' ',
        _ => '?',
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stay_aligned() {
        for (text, expected) in [
            ("│ 9.7 µs ┆ ≤ 3 │", "| 9.7 us | <=3 |"),
            ("╞══════════╪══════╡", "+=================+"),
            ("9.7\u{a0}ms × 2 … ¿", "9.7 ms x 2 . ?"),
        ] {
            assert_eq!(ascii(text), expected);
            assert_eq!(expected.chars().count(), text.chars().count());
        }
    }
}
