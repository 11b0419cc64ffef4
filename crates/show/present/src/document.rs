// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The evaluation document as JSON, and the page that shows it.

use rampart_model::Evaluation;
use serde::Serialize;

use crate::element::Element;
use crate::report::report;
use crate::static_html;

/// The page as `build.rs` found it; empty if it was not built.
const PAGE: &str = include_str!(concat!(env!("OUT_DIR"), "/page.html"));

/// The version of [`PageData`]; the page refuses others.
const VERSION: u32 = 1;

/// The data of the page.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct PageData {
    /// The version of the elements.
    pub version: u32,
    /// The title of the page.
    pub title: String,
    /// The report.
    pub elements: Vec<Element>,
}

impl PageData {
    /// Returns the data of the page of an evaluation.
    #[must_use]
    pub fn new(evaluation: &Evaluation) -> Self {
        Self {
            version: VERSION,
            title: format!("{}: Rampart evaluation", evaluation.machine.host_name),
            elements: report(evaluation),
        }
    }
}

/// Returns the evaluation as JSON, one field a line.
///
/// # Panics
/// Never: the document's types are numbers, texts, lists and structures, all of which JSON has.
#[must_use]
pub fn json(evaluation: &Evaluation) -> String {
    serde_json::to_string_pretty(evaluation).expect("the document's types are those of JSON")
}

/// Returns the evaluation as one HTML page that needs no network and no other file. If the
/// interactive page was not built, the page is static.
///
/// # Panics
/// Never, for the same reason as [`json`].
#[must_use]
pub fn html(evaluation: &Evaluation) -> String {
    let data = PageData::new(evaluation);
    if PAGE.is_empty() {
        return static_html::page(&data.title, &data.elements);
    }
    let text = "the types are those of JSON";
    let page = fill(PAGE, "elements", &serde_json::to_string(&data).expect(text));
    fill(
        &page,
        "evaluation",
        &serde_json::to_string(evaluation).expect(text),
    )
}

/// Puts JSON into the empty element of a page with this id; `build.rs` checks that it is there.
fn fill(page: &str, id: &str, json: &str) -> String {
    let empty = format!(r#"<script type="application/json" id="{id}"></script>"#);
    let element = empty.replace("></", &format!(">{}</", for_script(json)));
    page.replacen(&empty, &element, 1)
}

/// JSON that a `script` element can hold. `<` would let `</script` end the element and `<!--`
/// change how the rest is read (HTML standard, "Restrictions for contents of script elements");
/// U+2028 and U+2029 are line ends to older script readers. In JSON all of them are only within
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
    fn escapes_what_would_end_the_element() {
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
    fn fills_the_element_once_though_the_document_contains_it() {
        let empty = r#"<script type="application/json" id="evaluation"></script>"#;
        let page = format!("<a>{empty}</a>");
        let document = serde_json::to_string(empty).expect("json");
        let filled = fill(&page, "evaluation", &document);
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
