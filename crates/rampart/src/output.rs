// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Standard output is the result, standard error the rest. The only place that writes to either.

use std::io::{self, IsTerminal, Write};
use std::path::Path;

use anyhow::Context;

use crate::arguments::Color;

/// Writes a result to standard output.
///
/// # Errors
/// If the reader went away.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut stdout = anstream::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    if !text.ends_with('\n') {
        stdout.write_all(b"\n")?;
    }
    stdout.flush()
}

/// Writes a remark to standard error. If even that fails there is nobody to tell.
pub(crate) fn say(text: &str) {
    let _ = writeln!(anstream::stderr().lock(), "{text}");
}

/// Writes a result to a file, or to standard output.
pub(crate) fn write(path: Option<&Path>, text: &str) -> anyhow::Result<()> {
    match path {
        Some(path) => rampart_evaluate::replace(path, text.as_bytes())
            .with_context(|| format!("{}: cannot be written", path.display())),
        None => Ok(print(text)?),
    }
}

/// Decides on colour for everything printed from here on, and tells whether results have it.
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
        // anstream strips colour where NO_COLOR or a dumb terminal says so.
        Color::Auto => io::stdout().is_terminal(),
    }
}
