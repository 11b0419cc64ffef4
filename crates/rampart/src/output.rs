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
    let width = terminal_width();
    print(&rampart_present::terminal(
        elements,
        TerminalOptions { width, colour },
    ))
}

/// Writes the text of a short command to standard output. Without a terminal no line is broken.
pub(crate) fn print_text(elements: &[Element]) -> io::Result<()> {
    let width = match io::stdout().is_terminal() {
        true => terminal_width(),
        false => u16::MAX,
    };
    // anstream removes the colours if they are not wanted.
    let colour = true;
    print(&rampart_present::terminal(
        elements,
        TerminalOptions { width, colour },
    ))
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
