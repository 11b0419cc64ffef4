// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Elements as Markdown (CommonMark with tables), for an issue or a merge request.

use std::fmt::Write as _;

use rampart_model::clean;

use crate::element::{Element, ListItem, SpanStyle, Table, Text};
use crate::terminal::finding_line;

/// Renders elements as Markdown. Details, drawings and charts are left out.
#[must_use]
pub fn markdown(elements: &[Element]) -> String {
    let mut out = String::new();
    for element in elements {
        write(&mut out, element);
    }
    let text = out.trim_end().to_owned();
    if text.is_empty() { text } else { text + "\n" }
}

fn write(out: &mut String, element: &Element) {
    match element {
        Element::Heading { level, text, .. } => {
            let _ = writeln!(
                out,
                "{} {}\n",
                "#".repeat(usize::from(*level)),
                inline(text)
            );
        }
        Element::Paragraph { text, .. } => {
            let _ = writeln!(out, "{}\n", inline(text));
        }
        Element::Alarm { title, text, .. } => {
            let _ = writeln!(out, "> **{}** {}\n", escaped(title), inline(text));
        }
        Element::FirstAnswer { answer, parts } => {
            let _ = writeln!(out, "{}\n", inline(answer));
            for part in parts {
                let _ = writeln!(out, "**{}:** {}\n", part.label, inline(&part.text));
                if !part.command.is_empty() {
                    // Indented code has no fence that the text could end.
                    let _ = writeln!(out, "    {}\n", clean(&part.command));
                }
            }
        }
        Element::Answers { answers } => {
            for answer in answers {
                let sentence = inline(&answer.sentence);
                let _ = writeln!(out, "- **{}**: {sentence}", escaped(&answer.name));
            }
            out.push('\n');
        }
        Element::Pairs { pairs } => {
            for pair in pairs {
                let lines: Vec<String> = pair.value.iter().map(inline).collect();
                let _ = writeln!(out, "- {}: {}", escaped(&pair.name), lines.join(", "));
            }
            out.push('\n');
        }
        Element::List { items } => {
            list(out, items, 0);
            out.push('\n');
        }
        Element::Table(table) => write_table(out, table),
        Element::Findings { findings } => {
            for finding in findings {
                let line = escaped(&finding_line(finding));
                let _ = writeln!(out, "- {}: {line}", finding.word);
                for fix in &finding.fixes {
                    let _ = writeln!(out, "  - fix: {}", inline(fix));
                }
            }
            out.push('\n');
        }
        Element::Matrix(matrix) => {
            for group in &matrix.groups {
                let _ = writeln!(out, "### {}\n", inline(&group.title));
                let mut header = vec![escaped(&matrix.corner)];
                header.extend(matrix.columns.iter().map(inline));
                let rows = group.rows.iter().map(|row| {
                    let mut cells = vec![escaped(&row.name)];
                    cells.extend(row.entries.iter().map(|entry| match entry.outcome {
                        None => "–".to_owned(),
                        Some(_) if entry.figure.is_empty() => escaped(&entry.word),
                        Some(_) => {
                            escaped(&format!("{} {} ({})", entry.word, entry.figure, entry.ends))
                        }
                    }));
                    cells
                });
                pipes(out, &header, &vec![false; header.len()], rows);
                let _ = writeln!(out, "{}\n", inline(&group.remark));
            }
        }
        Element::Columns { columns, .. } => {
            for element in columns.iter().flatten() {
                write(out, element);
            }
        }
        Element::Switched {
            leading: true,
            elements,
            ..
        } => {
            for element in elements {
                write(out, element);
            }
        }
        Element::Badges { .. }
        | Element::Latency(_)
        | Element::Detail { .. }
        | Element::Switched { .. } => {}
    }
}

fn list(out: &mut String, items: &[ListItem], indent: usize) {
    for item in items {
        let text = inline(&item.text);
        let text = if item.label.is_empty() {
            text
        } else {
            format!("{}: {text}", escaped(&item.label))
        };
        let _ = writeln!(out, "{}- {text}", " ".repeat(indent));
        list(out, &item.items, indent + 2);
    }
}

fn write_table(out: &mut String, table: &Table) {
    let shown: Vec<usize> = (0..table.columns.len())
        .filter(|index| !table.columns[*index].detail)
        .collect();
    let header: Vec<String> = shown
        .iter()
        .map(|index| inline(&table.columns[*index].name))
        .collect();
    let figures: Vec<bool> = shown
        .iter()
        .map(|index| table.columns[*index].kind == crate::element::ColumnKind::Figure)
        .collect();
    let rows = table.groups.iter().filter(|group| !group.detail);
    let rows = rows.flat_map(|group| {
        let name = (!group.name.is_empty()).then(|| vec![format!("**{}**", escaped(&group.name))]);
        let entries = group.rows.iter().map(|row| {
            let text = |index: &usize| row.entries.get(*index).map(|entry| inline(&entry.text));
            shown
                .iter()
                .map(|index| text(index).unwrap_or_default())
                .collect()
        });
        name.into_iter().chain(entries)
    });
    pipes(out, &header, &figures, rows);
}

fn pipes(
    out: &mut String,
    header: &[String],
    figures: &[bool],
    rows: impl Iterator<Item = Vec<String>>,
) {
    let _ = writeln!(out, "| {} |", header.join(" | "));
    let rules = figures
        .iter()
        .map(|figure| if *figure { "--:" } else { "---" });
    let _ = writeln!(out, "| {} |", rules.collect::<Vec<_>>().join(" | "));
    for mut row in rows {
        row.resize(header.len(), String::new());
        let _ = writeln!(out, "| {} |", row.join(" | "));
    }
    out.push('\n');
}

fn inline(text: &Text) -> String {
    let spans = text.0.iter().map(|span| match span.style {
        SpanStyle::Strong | SpanStyle::Wrong => format!("**{}**", escaped(&span.text)),
        SpanStyle::Code => format!("`{}`", clean(&span.text).replace('`', "'")),
        SpanStyle::Plain | SpanStyle::Faint => escaped(&span.text),
    });
    spans.collect()
}

/// Escapes characters that Markdown reads as markup (CommonMark 0.31, 2.4 "Backslash escapes"). An
/// underscore inside a word is not markup (6.2, rule 2).
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut in_word = false;
    let text = clean(text);
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        let next = characters.peek().is_some_and(|next| next.is_alphanumeric());
        let markup = match character {
            '_' => !(in_word && next),
            '\\' | '`' | '*' | '[' | ']' | '<' | '>' | '|' | '&' | '#' => true,
            _ => false,
        };
        if markup {
            out.push('\\');
        }
        out.push(character);
        in_word = character.is_alphanumeric();
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::{Column, ColumnKind, Row, TableStyle};

    #[test]
    fn renders_headings_tables_and_code() {
        let table = Table::new(
            TableStyle::Figures,
            "limits",
            vec![
                Column::new(ColumnKind::Text, "name"),
                Column::new(ColumnKind::Figure, "value"),
                Column::new(ColumnKind::Text, "page only").detail(),
            ],
            vec![Row::new(vec!["a|b".into(), "7".into(), "hidden".into()])],
        );
        let text = markdown(&[
            Element::section("limits", "Limits", ""),
            Element::paragraph(Text::prose("Run `ulimit -l`.")),
            Element::Table(table),
            Element::detail(vec![Element::paragraph("left out")]),
        ]);
        assert_eq!(
            text,
            "## Limits\n\nRun `ulimit -l`.\n\n| name | value |\n| --- | --: |\n| a\\|b | 7 |\n"
        );
    }

    #[test]
    fn escapes_markup_of_the_document() {
        assert_eq!(
            markdown(&[Element::paragraph("<b> *x* [y](z)")]),
            "\\<b\\> \\*x\\* \\[y\\](z)\n"
        );
    }
}
