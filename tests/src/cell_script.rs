// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a script said in the simulated machine: of a word `run WORD COMMAND…` the lines between `<WORD>`
//! and `</WORD> is CODE`.

use serde_json::Value;

/// What a command said, and its exit code.
#[derive(Debug)]
pub struct Said<'a>(&'a str);

impl<'a> Said<'a> {
    /// What a script said.
    #[must_use]
    pub const fn new(text: &'a str) -> Self {
        Self(text)
    }

    /// What the command of this word said, if it ended with this exit code.
    ///
    /// # Panics
    /// If it ended with another one, or was never started.
    #[must_use]
    pub fn of(&self, word: &str, code: i32) -> &str {
        let (_, rest) = self
            .0
            .split_once(&format!("<{word}>\n"))
            .unwrap_or_else(|| panic!("no <{word}>: {}", self.0));
        let (said, after) = rest
            .split_once(&format!("</{word}> is "))
            .unwrap_or_else(|| panic!("no end of <{word}>: {rest}"));
        let found = after.lines().next().unwrap_or_default();
        assert_eq!(found, code.to_string(), "{word}: {said}");
        said
    }

    /// That the command of this word ended well.
    ///
    /// # Panics
    /// If it did not.
    pub fn went_well(&self, word: &str) {
        let _ = self.of(word, 0);
    }

    /// The same as a document, of a command that ended well.
    ///
    /// # Panics
    /// If it did not, or said none.
    #[must_use]
    pub fn json(&self, word: &str) -> Value {
        let said = self.of(word, 0);
        serde_json::from_str(said).unwrap_or_else(|error| panic!("{word}: {error}: {said}"))
    }

    /// Refused with exit code 4, and the message has all of these words.
    ///
    /// # Panics
    /// If not.
    pub fn refused(&self, word: &str, words: &[&str]) {
        let said = self.of(word, 4);
        for wanted in words.iter().chain(&["fix: "]) {
            assert!(said.contains(wanted), "{word}: no {wanted:?} in: {said}");
        }
    }
}
