// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The document itself: as JSON, and inside the page that draws it.

use rampart_model::Evaluation;

/// The page, built from `web/`.
const PAGE: &str = include_str!("../../web/dist/page.html");

/// The empty element of [`PAGE`] that the document goes into; `build.rs` checks that it is there.
const PLACEHOLDER: &str = r#"<script type="application/json" id="evaluation"></script>"#;

/// The evaluation as JSON, one field a line.
///
/// # Panics
/// Never: the document's types are numbers, texts, lists and structures, all of which JSON has.
#[must_use]
pub fn json(evaluation: &Evaluation) -> String {
    serde_json::to_string_pretty(evaluation).expect("the document's types are those of JSON")
}

/// The evaluation as one HTML page that needs no network and no other file.
///
/// # Panics
/// Never, for the same reason as [`json`].
#[must_use]
pub fn html(evaluation: &Evaluation) -> String {
    let document =
        serde_json::to_string(evaluation).expect("the document's types are those of JSON");
    fill(PAGE, &document)
}

/// Puts `document` into the placeholder of `page`.
fn fill(page: &str, document: &str) -> String {
    let element = PLACEHOLDER.replace("></", &format!(">{}</", for_script(document)));
    page.replacen(PLACEHOLDER, &element, 1)
}

/// JSON that a `script` element can hold. `<` would let `</script` end the element and `<!--`
/// change how the rest is read (HTML standard, "Restrictions for contents of script elements");
/// U+2028 and U+2029 are line ends to older script readers. In JSON all of them stand only within
/// texts, where an escape means the same.
fn for_script(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len() + json.len() / 64);
    for character in json.chars() {
        match character {
            '<' => escaped.push_str("\\u003c"),
            '>' => escaped.push_str("\\u003e"),
            '&' => escaped.push_str("\\u0026"),
            '\u{2028}' => escaped.push_str("\\u2028"),
            '\u{2029}' => escaped.push_str("\\u2029"),
            _ => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nothing_in_the_document_ends_its_element() {
        let text = "</script><!-- \u{2028}\u{2029} & ü";
        let escaped = for_script(&serde_json::to_string(text).expect("json"));
        for forbidden in ['<', '>', '&', '\u{2028}', '\u{2029}'] {
            assert!(!escaped.contains(forbidden), "{escaped}");
        }
        assert_eq!(
            serde_json::from_str::<String>(&escaped).expect("json"),
            text
        );
    }

    #[test]
    fn a_document_that_names_the_placeholder_is_filled_once() {
        let page = format!("<a>{PLACEHOLDER}</a>");
        let document = serde_json::to_string(PLACEHOLDER).expect("json");
        let filled = fill(&page, &document);
        assert_eq!(filled.matches("</script>").count(), 1);
        assert_eq!(filled.matches("id=\"evaluation\"").count(), 1);
    }

    proptest! {
        #[test]
        fn escaping_keeps_every_text(text in any::<String>()) {
            let escaped = for_script(&serde_json::to_string(&text).expect("json"));
            prop_assert!(!escaped.contains('<'));
            prop_assert_eq!(serde_json::from_str::<String>(&escaped).expect("json"), text);
        }
    }
}
