// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The only functions that write to standard output (results) and standard error (messages).

use std::io::{self, IsTerminal, Write};
use std::path::Path;

use anyhow::Context;
use rampart_model::Finding;
use rampart_present::{Element, TerminalOptions};
use serde::Serialize;

use crate::arguments::Color;

/// Writes a result to standard output.
///
/// # Errors
/// If standard output is closed.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut stdout = anstream::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    if !text.ends_with('\n') {
        stdout.write_all(b"\n")?;
    }
    stdout.flush()
}

/// Writes a document to standard output as JSON.
pub(crate) fn print_json(document: &impl Serialize) -> anyhow::Result<()> {
    Ok(print(&serde_json::to_string_pretty(document)?)?)
}

/// Writes elements to standard output as text.
pub(crate) fn print_elements(elements: &[Element], colour: bool) -> io::Result<()> {
    print(&terminal_text(elements, terminal_width(), colour))
}

/// Writes the text of a short command to standard output. Without a terminal no line is broken.
pub(crate) fn print_text(elements: &[Element]) -> io::Result<()> {
    let width = match io::stdout().is_terminal() {
        true => terminal_width(),
        false => u16::MAX,
    };
    // anstream removes the colours if they are not wanted.
    let colour = true;
    print(&terminal_text(elements, width, colour))
}

/// Renders elements for a terminal of this locale.
pub(crate) fn terminal_text(elements: &[Element], width: u16, colour: bool) -> String {
    let options = TerminalOptions { width, colour };
    in_locale(rampart_present::terminal(elements, options))
}

/// Returns a text for people, in ASCII if the locale is not UTF-8.
fn in_locale(text: String) -> String {
    match is_utf8(|name| std::env::var(name).ok()) {
        true => text,
        false => rampart_present::ascii(&text),
    }
}

/// Returns whether the locale is UTF-8. The first variable that is set decides (locale(7)); without any, which is
/// usual for services and containers, it is UTF-8.
fn is_utf8(variable: impl Fn(&str) -> Option<String>) -> bool {
    let set = ["LC_ALL", "LC_CTYPE", "LANG"]
        .into_iter()
        .filter_map(variable);
    let locale = set.into_iter().find(|value| !value.is_empty());
    locale.is_none_or(|locale| {
        let locale = locale.to_ascii_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    })
}

/// Returns the columns of the terminal on standard output, or 100 without a terminal.
pub(crate) fn terminal_width() -> u16 {
    rustix::termios::tcgetwinsize(io::stdout())
        .ok()
        .map(|size| size.ws_col)
        .filter(|columns| *columns >= 40)
        .unwrap_or(100)
}

/// Writes a finding to standard error.
pub(crate) fn finding(finding: &Finding) {
    let text = format!("{}: {finding}", finding.severity.name());
    eprint(&rampart_present::message(&text));
}

/// Writes a message to standard error. A closed standard error is not an error.
pub(crate) fn eprint(text: &str) {
    let text = in_locale(text.to_owned());
    let _ = writeln!(anstream::stderr().lock(), "{text}");
}

/// Writes a result to a file, or to standard output if `path` is `None`.
pub(crate) fn write(path: Option<&Path>, text: &str) -> anyhow::Result<()> {
    match path {
        Some(path) => rampart_host::replace_file(path, text.as_bytes())
            .with_context(|| format!("cannot write {}", path.display())),
        None => Ok(print(text)?),
    }
}

/// Chooses whether output is coloured from here on. Returns whether results on standard output
/// are.
pub(crate) fn choose_colour(color: Color) -> bool {
    let choice = match color {
        Color::Auto => anstream::ColorChoice::Auto,
        Color::Always => anstream::ColorChoice::Always,
        Color::Never => anstream::ColorChoice::Never,
    };
    choice.write_global();
    match color {
        Color::Always => true,
        Color::Never => false,
        // anstream removes colour if NO_COLOR is set or the terminal has none.
        Color::Auto => io::stdout().is_terminal(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_variable_that_is_set_decides_the_locale() {
        let locale = |set: &[(&str, &str)]| {
            is_utf8(|name| {
                let found = set.iter().find(|(of, _)| *of == name);
                found.map(|(_, value)| (*value).to_owned())
            })
        };
        assert!(locale(&[]));
        assert!(locale(&[("LANG", "de_DE.UTF-8")]));
        assert!(locale(&[
            ("LC_ALL", ""),
            ("LC_CTYPE", "C.utf8"),
            ("LANG", "C")
        ]));
        assert!(!locale(&[("LC_ALL", "C"), ("LANG", "C.UTF-8")]));
        assert!(!locale(&[("LC_CTYPE", "POSIX")]));
        assert!(!locale(&[("LANG", "de_DE.ISO-8859-1")]));
    }
}
