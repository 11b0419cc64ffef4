// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Parses kernel command lines and replaces arguments in them
//! (Documentation/admin-guide/kernel-parameters.rst).

use crate::HostError;

/// Parameters whose relative order matters: `hugepages=` applies to the size before it.
const TOGETHER: &[&str] = &["hugepagesz", "hugepages"];

/// Splits a line into words. Does not split at space between quotation marks, and keeps the marks.
pub(super) fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut quoted = None;
    for character in line.chars() {
        match (character, quoted) {
            ('"' | '\'', None) => quoted = Some(character),
            (mark, Some(open)) if mark == open => quoted = None,
            (space, None) if space.is_whitespace() => {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                continue;
            }
            _ => {}
        }
        word.push(character);
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

/// Returns the name of a parameter as the kernel compares it: `-` and `_` are equal.
pub(super) fn name(word: &str) -> String {
    let bare = word.trim_start_matches(['"', '\'']);
    let name = bare.split_once('=').map_or(bare, |(name, _)| name);
    name.replace('-', "_")
}

/// Returns the distinct parameter names of the wanted arguments.
pub(super) fn names(wanted: &[String]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for word in wanted {
        let name = name(word);
        let all = match TOGETHER.contains(&name.as_str()) {
            true => TOGETHER.iter().map(|name| (*name).to_owned()).collect(),
            false => vec![name],
        };
        for name in all {
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    names
}

/// Returns the line with the wanted arguments and no other value of their parameters, or unchanged if
/// it has them already. Keeps the words after `--`, which are for the init process.
pub(super) fn merged(line: &str, wanted: &[String]) -> String {
    if has_all(line, wanted) {
        return line.to_owned();
    }
    let names = names(wanted);
    let all = words(line);
    let end = all.iter().position(|word| word == "--");
    let (before_end, after_end) = all.split_at(end.unwrap_or(all.len()));
    let kept = before_end
        .iter()
        .filter(|word| !names.contains(&name(word)));
    kept.chain(wanted)
        .chain(after_end)
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(" ")
}

/// Returns whether a line has the wanted arguments and no other value of their parameters.
pub(super) fn has_all(line: &str, wanted: &[String]) -> bool {
    let names = names(wanted);
    let bare = |word: &str| word.replace(['"', '\''], "");
    let mut present: Vec<(usize, String)> = Vec::new();
    for word in words(line).iter().take_while(|word| *word != "--") {
        if let Some(location) = names.iter().position(|known| *known == name(word)) {
            present.push((group(&names, location), value_of(&bare(word))));
        }
    }
    let mut needed: Vec<(usize, String)> = Vec::new();
    for word in wanted {
        if let Some(location) = names.iter().position(|known| *known == name(word)) {
            needed.push((group(&names, location), value_of(&bare(word))));
        }
    }
    // Only the order of the values of one parameter matters.
    present.sort_by_key(|(location, _)| *location);
    needed.sort_by_key(|(location, _)| *location);
    present == needed
}

/// Returns one index for all parameters whose relative order matters.
fn group(names: &[String], location: usize) -> usize {
    let is_together = |name: &String| TOGETHER.contains(&name.as_str());
    match names.get(location).is_some_and(is_together) {
        true => names.iter().position(is_together).unwrap_or(location),
        false => location,
    }
}

/// Returns a word with its name as the kernel compares it.
fn value_of(word: &str) -> String {
    match word.split_once('=') {
        Some((left, value)) => format!("{}={value}", name(left)),
        None => name(word),
    }
}

/// Checks that each text is one argument of a kernel command line.
pub(super) fn check(wanted: &[String]) -> Result<(), HostError> {
    let refuse = |word: &String, what: &str, needed: &str| {
        Err(HostError::Request {
            location: "the kernel command line".to_owned(),
            what: what.to_owned(),
            found: format!("{word:?}"),
            expected: needed.to_owned(),
            fix: "correct the argument in the plan".to_owned(),
        })
    };
    if wanted.is_empty() {
        return refuse(
            &String::new(),
            "there is no argument",
            "at least one argument",
        );
    }
    for word in wanted {
        if word.chars().any(char::is_control) || word.contains('\'') {
            return refuse(
                word,
                "boot loaders cannot pass on a character of this argument",
                "text without control characters and without '",
            );
        }
        if words(word) != [word.clone()] || word.matches('"').count() % 2 == 1 {
            return refuse(word, "it is not one argument", "spaces only between \"");
        }
        let name = name(word);
        if name.is_empty() || name.chars().all(|character| character == '_') {
            return refuse(word, "it has no parameter name", "NAME or NAME=VALUE");
        }
        let is_plain =
            |character: char| character.is_ascii_alphanumeric() || "_.:/".contains(character);
        if !name.chars().all(is_plain) {
            return refuse(
                word,
                "its parameter name is invalid",
                "letters, digits and _ - . : /",
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn wanted(text: &str) -> Vec<String> {
        words(text)
    }

    #[test]
    fn replaces_other_values_of_the_same_parameters() {
        let line =
            "root=/dev/sda1 isolcpus=3 nohz-full=3 dyndbg=\"file a.c +p\" quiet -- isolcpus=9";
        assert_eq!(
            merged(line, &wanted("isolcpus=domain,2-3 nohz_full=2-3 nosmt")),
            "root=/dev/sda1 dyndbg=\"file a.c +p\" quiet isolcpus=domain,2-3 nohz_full=2-3 nosmt -- isolcpus=9"
        );
    }

    #[test]
    fn keeps_a_line_that_has_the_arguments() {
        for line in [
            "  root=/x   nohz-full=2-3 isolcpus=2-3",
            "isolcpus=2-3 'nohz_full=2-3'",
        ] {
            assert_eq!(merged(line, &wanted("isolcpus=2-3 nohz_full=2-3")), line);
        }
        let doubled = "isolcpus=2-3 isolcpus=2-3";
        assert_eq!(merged(doubled, &wanted("isolcpus=2-3")), "isolcpus=2-3");
    }

    #[test]
    fn keeps_page_sizes_before_their_numbers() {
        let pages = wanted("hugepagesz=1G hugepages=4 hugepagesz=2M hugepages=64");
        assert_eq!(
            merged(
                "hugepagesz=2M hugepages=64 hugepagesz=1G hugepages=4 ro",
                &pages
            ),
            "ro hugepagesz=1G hugepages=4 hugepagesz=2M hugepages=64"
        );
        assert!(!has_all(
            "hugepages=4 hugepagesz=1G",
            &wanted("hugepagesz=1G hugepages=4")
        ));
    }

    #[test]
    fn refuses_invalid_arguments() {
        check(&wanted(
            "isolcpus=2-3 dyndbg=\"file a +p\" nosmt kvm-amd.avic=1",
        ))
        .expect("arguments");
        for wrong in [
            "", "a b", "--", "x=\n", "x='1'", "x=\"1", "=3", "a;b=1", "$(id)",
        ] {
            let error = check(&[wrong.to_owned()]).expect_err(wrong).to_string();
            assert!(error.contains("fix"), "{error}");
        }
        check(&[]).expect_err("none");
    }

    proptest! {
        #[test]
        fn a_merged_line_has_the_arguments(line in "[a-c=_\" -]{0,30}", value in "[a-c0-9,-]{0,5}") {
            let wanted = [format!("a_b={value}"), "c".to_owned()];
            let once = merged(&line, &wanted);
            // An open quotation mark includes the words after it, for the kernel too.
            if line.matches('"').count() % 2 == 0 {
                prop_assert!(has_all(&once, &wanted), "{once}");
                prop_assert_eq!(merged(&once, &wanted), once);
            }
        }
    }
}
