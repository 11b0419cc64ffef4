// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The known word nearest to an unknown one.

/// Words less similar than this are not suggested (Jaro-Winkler, 0 to 1).
const SIMILAR: f64 = 0.8;

/// Longer texts are no mistyped words.
const LONGEST: usize = 64;

/// Returns the known word that is most similar to `word`; `None` if none is similar. Upper case,
/// and `_` for `-`, make no difference.
#[must_use]
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |text: &str| text.to_lowercase().replace('_', "-");
    if word.is_empty() || word.chars().count() > LONGEST {
        return None;
    }
    let word = plain(word);
    let mut best = None;
    for known in known {
        let other = plain(known);
        let similarity = strsim::jaro_winkler(&word, &other);
        // One typing error in a short word changes its similarity a lot.
        let alike = similarity >= SIMILAR || strsim::damerau_levenshtein(&word, &other) <= 1;
        if alike && best.is_none_or(|(highest, _)| similarity > highest) {
            best = Some((similarity, known));
        }
    }
    best.map(|(_, known)| known)
}

/// Returns `; did you mean …?` with the known word nearest to `word`, or the empty text.
pub(crate) fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    match nearest(word, known) {
        Some(near) => format!("; did you mean `{near}`?"),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn finds_the_word_that_was_meant() {
        let domains = [
            "host",
            "task",
            "container",
            "container:podman",
            "vm",
            "cell",
        ];
        for (word, meant) in [
            ("hots", Some("host")),
            ("contianer", Some("container")),
            ("container:podmna", Some("container:podman")),
            ("cont", Some("container")),
            ("vn", Some("vm")),
            ("VM", Some("vm")),
            ("", None),
            ("press-control", None),
        ] {
            assert_eq!(nearest(word, domains), meant, "{word}");
        }
        assert_eq!(
            nearest("nohz_ful", ["nohz", "nohz-full"]),
            Some("nohz-full")
        );
        assert_eq!(nearest(&"x".repeat(100_000), ["x"]), None);
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in ".{0,80}") {
            let near = nearest(&text, ["wakeup", "noise"]);
            prop_assert!(near.is_none_or(|near| ["wakeup", "noise"].contains(&near)));
        }

        #[test]
        fn a_known_word_is_its_own_nearest(index in 0usize..4) {
            let known = ["wakeup", "noise", "fwq", "loop"];
            prop_assert_eq!(nearest(known[index], known), Some(known[index]));
        }
    }
}
