// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Elements as static HTML: the page of a `rampart` that was built without the interactive page.

use std::fmt::Write as _;

use crate::charts::Matrix;
use crate::element::{Element, ListItem, SpanStyle, Table, Text};
use crate::terminal::finding_line;

const STYLE: &str = "body{font:15px/1.5 sans-serif;max-width:75em;margin:2em auto;padding:0 1em}\
table{border-collapse:collapse;margin:.5em 0}th,td{border:1px solid #999;padding:.2em .6em;text-align:left;\
vertical-align:top}.figure{text-align:right}.alarm{border-left:4px solid #b00;padding-left:.8em}";

const NOTE: &str = "This is the plain page. The full page has charts, zoom and pairs in time: build crates/show/web \
with Node.js (<code>npm ci</code>, then <code>npm run build</code>), then build rampart again.";

/// Returns a whole page with every element but charts.
pub(crate) fn page(title: &str, elements: &[Element]) -> String {
    let mut body = String::new();
    for element in elements {
        write(&mut body, element);
    }
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{}</title>\n<style>{STYLE}</style>\n</head>\n\
         <body>\n{body}<footer><p>{NOTE}</p></footer>\n</body>\n</html>\n",
        escaped(title)
    )
}

fn write(out: &mut String, element: &Element) {
    match element {
        Element::Heading {
            level, id, text, ..
        } => {
            let id = if id.is_empty() {
                String::new()
            } else {
                format!(" id=\"{}\"", escaped(id))
            };
            let _ = writeln!(out, "<h{level}{id}>{}</h{level}>", inline(text));
        }
        Element::Paragraph { text, .. } => {
            let _ = writeln!(out, "<p>{}</p>", inline(text));
        }
        Element::Alarm { title, text, .. } => {
            let title = escaped(title);
            let _ = writeln!(
                out,
                "<p class=\"alarm\"><b>{title}</b> {}</p>",
                inline(text)
            );
        }
        Element::FirstAnswer { answer, parts } => {
            let _ = writeln!(out, "<p><big>{}</big></p>", inline(answer));
            for part in parts {
                let (label, text) = (part.label, inline(&part.text));
                let _ = writeln!(out, "<p><b>{label}:</b> {text}</p>");
                if !part.command.is_empty() {
                    let _ = writeln!(out, "<pre>{}</pre>", escaped(&part.command));
                }
            }
        }
        Element::Answers { answers } => {
            out.push_str("<ul>\n");
            for answer in answers {
                let (name, sentence) = (escaped(&answer.name), inline(&answer.sentence));
                let _ = writeln!(out, "<li><b>{name}</b>: {sentence}</li>");
            }
            out.push_str("</ul>\n");
        }
        Element::Pairs { pairs } => {
            out.push_str("<dl>\n");
            for pair in pairs {
                let lines: Vec<String> = pair.value.iter().map(inline).collect();
                let (name, value) = (escaped(&pair.name), lines.join("<br>"));
                let _ = writeln!(out, "<dt>{name}</dt><dd>{value}</dd>");
            }
            out.push_str("</dl>\n");
        }
        Element::List { items } => list(out, items),
        Element::Table(table) => write_table(out, table),
        Element::Findings { findings } => {
            out.push_str("<ul>\n");
            for finding in findings {
                let line = escaped(&finding_line(finding));
                let _ = write!(out, "<li><b>{}</b>: {line}", finding.word);
                for fix in &finding.fixes {
                    let _ = write!(out, "<br>Fix: {}", inline(fix));
                }
                out.push_str("</li>\n");
            }
            out.push_str("</ul>\n");
        }
        Element::Matrix(matrix) => write_matrix(out, matrix),
        Element::Detail { elements, .. } => all(out, elements),
        Element::Columns { columns, .. } => columns.iter().for_each(|column| all(out, column)),
        Element::Switched {
            leading: true,
            elements,
            ..
        } => all(out, elements),
        Element::Badges { .. } | Element::Latency(_) | Element::Switched { .. } => {}
    }
}

fn all(out: &mut String, elements: &[Element]) {
    for element in elements {
        write(out, element);
    }
}

fn list(out: &mut String, items: &[ListItem]) {
    out.push_str("<ul>\n");
    for item in items {
        let label = if item.label.is_empty() {
            String::new()
        } else {
            format!("{}: ", escaped(&item.label))
        };
        let _ = write!(out, "<li>{label}{}", inline(&item.text));
        if !item.items.is_empty() {
            list(out, &item.items);
        }
        out.push_str("</li>\n");
    }
    out.push_str("</ul>\n");
}

fn write_table(out: &mut String, table: &Table) {
    use crate::element::ColumnKind::Figure;
    let _ = write!(
        out,
        "<table><caption>{}</caption><tr>",
        escaped(&table.caption)
    );
    for column in &table.columns {
        let _ = write!(out, "<th>{}</th>", inline(&column.name));
    }
    out.push_str("</tr>\n");
    for group in &table.groups {
        if !group.name.is_empty() {
            let (width, name) = (table.columns.len(), escaped(&group.name));
            let _ = writeln!(out, "<tr><th colspan=\"{width}\">{name}</th></tr>");
        }
        for row in &group.rows {
            out.push_str("<tr>");
            for (entry, column) in row.entries.iter().zip(&table.columns) {
                let class = if column.kind == Figure {
                    " class=\"figure\""
                } else {
                    ""
                };
                let _ = write!(out, "<td{class}>{}</td>", inline(&entry.text));
            }
            out.push_str("</tr>\n");
        }
    }
    out.push_str("</table>\n");
}

fn write_matrix(out: &mut String, matrix: &Matrix) {
    for group in &matrix.groups {
        let (title, corner) = (inline(&group.title), escaped(&matrix.corner));
        let _ = write!(out, "<h3>{title}</h3>\n<table><tr><th>{corner}</th>");
        for column in &matrix.columns {
            let _ = write!(out, "<th>{}</th>", inline(column));
        }
        out.push_str("</tr>\n");
        for row in &group.rows {
            let _ = write!(out, "<tr><th>{}</th>", escaped(&row.name));
            for entry in &row.entries {
                let text = [&entry.word, &entry.figure, &entry.ends].map(|text| escaped(text));
                let _ = write!(out, "<td>{}</td>", text.join(" ").trim_end());
            }
            out.push_str("</tr>\n");
        }
        let _ = writeln!(out, "</table>\n<p>{}</p>", inline(&group.remark));
    }
}

fn inline(text: &Text) -> String {
    let spans = text.0.iter().map(|span| {
        let text = escaped(&span.text);
        match span.style {
            SpanStyle::Plain => text,
            SpanStyle::Strong | SpanStyle::Wrong => format!("<b>{text}</b>"),
            SpanStyle::Code => format!("<code>{text}</code>"),
            SpanStyle::Faint => format!("<small>{text}</small>"),
        }
    });
    spans.collect()
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            _ => out.push(character),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::{Column, ColumnKind, Row, TableStyle};

    #[test]
    fn renders_headings_paragraphs_tables_and_the_note() {
        let table = Table::new(
            TableStyle::Figures,
            "limits",
            vec![Column::new(ColumnKind::Figure, "<value>")],
            vec![Row::new(vec!["</script>&".into()])],
        );
        let page = page(
            "<title>",
            &[
                Element::section("limits", "Limits", ""),
                Element::paragraph(Text::prose("Run `ulimit -l`.")),
                Element::detail(vec![Element::Table(table)]),
            ],
        );
        for part in [
            "<title>&lt;title&gt;</title>",
            "<h2 id=\"limits\">Limits</h2>",
            "<p>Run <code>ulimit -l</code>.</p>",
            "<th>&lt;value&gt;</th>",
            "<td class=\"figure\">&lt;/script&gt;&amp;</td>",
            "npm run build",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
        assert!(!page.contains("<script"), "{page}");
    }
}
