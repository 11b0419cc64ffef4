// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The output of a script in the simulated machine: `run WORD COMMAND…` prints the output of the command
//! between the lines `<WORD>` and `</WORD> is CODE`.

use serde_json::Value;

/// The output of a script.
#[derive(Debug)]
pub struct ScriptOutput<'a>(&'a str);

impl<'a> ScriptOutput<'a> {
    /// Wraps the output of a script.
    #[must_use]
    pub const fn new(text: &'a str) -> Self {
        Self(text)
    }

    /// Returns the output of the command of this word.
    ///
    /// # Panics
    /// If the command ended with another exit code, or was not started.
    #[must_use]
    pub fn of(&self, word: &str, code: i32) -> &str {
        let (_, rest) = self
            .0
            .split_once(&format!("<{word}>\n"))
            .unwrap_or_else(|| panic!("no <{word}>: {}", self.0));
        let (printed, after) = rest
            .split_once(&format!("</{word}> is "))
            .unwrap_or_else(|| panic!("no end of <{word}>: {rest}"));
        let found = after.lines().next().unwrap_or_default();
        assert_eq!(found, code.to_string(), "{word}: {printed}");
        printed
    }

    /// Asserts that the command of this word succeeded.
    ///
    /// # Panics
    /// If it failed.
    pub fn assert_success(&self, word: &str) {
        let _ = self.of(word, 0);
    }

    /// Parses the output of a successful command as JSON.
    ///
    /// # Panics
    /// If the command failed or printed no JSON.
    #[must_use]
    pub fn json(&self, word: &str) -> Value {
        let printed = self.of(word, 0);
        serde_json::from_str(printed).unwrap_or_else(|error| panic!("{word}: {error}: {printed}"))
    }

    /// Asserts that the command was refused: exit code 4, and an error with a fix and all of these words.
    ///
    /// # Panics
    /// If the command was not refused so.
    pub fn refused(&self, word: &str, words: &[&str]) {
        let error = self.of(word, 4);
        for wanted in words.iter().chain(&["fix: "]) {
            assert!(error.contains(wanted), "{word}: no {wanted:?} in: {error}");
        }
    }
}
