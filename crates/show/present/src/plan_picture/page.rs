// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The picture of a plan as one HTML page without scripts and other files.

use rampart_model::{ResolvedPlan, clean};

use super::plan_facts;

const STYLE: &str = "\
:root{color-scheme:light dark;font:15px/1.45 system-ui,sans-serif}\
body{max-width:62rem;margin:2rem auto;padding:0 1rem}\
h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}\
.map{display:flex;flex-wrap:wrap;gap:3px;margin:.3rem 0}\
.map span{width:2.6rem;text-align:center;border:1px solid;border-radius:4px;padding:.15rem 0}\
.map b{display:block}.map small{opacity:.75}\
table{border-collapse:collapse;width:100%}\
th,td{text-align:left;vertical-align:top;padding:.25rem .7rem .25rem 0;border-bottom:1px solid #8886}\
.error{color:#c22;font-weight:bold}.warning{color:#a60;font-weight:bold}\
code{overflow-wrap:anywhere}";

/// Returns the picture of a plan as an HTML page. All text of the plan and the machine is escaped.
#[must_use]
pub fn plan_page(plan: &ResolvedPlan, title: &str) -> String {
    let title = escape(title);
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{title}</title>\n\
         <style>{STYLE}</style>\n<h1>{title}</h1>\n"
    );
    page.push_str(if plan.is_refused() {
        "<p class=\"error\">The plan does not fit: see the findings.</p>\n"
    } else {
        "<p>The plan fits the machine.</p>\n"
    });
    map(&mut page, plan);
    let rows = plan_facts::rows(plan).into_iter();
    let rows = rows.map(|row| {
        vec![
            row.cpus.to_string(),
            row.owner,
            row.role,
            row.policy,
            row.node,
        ]
    });
    table(
        &mut page,
        "CPUs",
        &["CPUs", "owner", "role", "policy", "node"],
        rows,
    );
    let rows = plan.domains.iter().map(|domain| {
        let letter = plan_facts::letter(plan, &domain.name).unwrap_or('*');
        vec![
            format!("{letter} {}", domain.name),
            domain.kind.to_string(),
            domain.cpus.to_string(),
            domain.emulator.to_string(),
            domain
                .reasons
                .iter()
                .cloned()
                .chain(plan_facts::owned(domain))
                .collect::<Vec<_>>()
                .join("; "),
        ]
    });
    table(
        &mut page,
        "Domains",
        &["name", "kind", "CPUs", "emulator", "reasons"],
        rows,
    );
    let rows = plan_facts::shares(plan).into_iter();
    let rows = rows.map(|(what, cpus, who)| vec![what, cpus.to_string(), who]);
    table(
        &mut page,
        "Shared caches and memory nodes",
        &["resource", "CPUs", "domains"],
        rows,
    );
    let rows = plan_facts::interrupts(plan).into_iter();
    let rows = rows.map(|(owner, count, cpus, names)| {
        vec![owner, count.to_string(), cpus.to_string(), names.join(", ")]
    });
    table(
        &mut page,
        "Interrupts",
        &["owner", "number", "CPUs", "interrupts"],
        rows,
    );
    let settings = plan.host.iter();
    let rows = settings.map(|(name, choice)| vec![name.clone(), choice.to_string()]);
    table(&mut page, "Settings", &["setting", "choice"], rows);
    findings(&mut page, plan);
    page.push_str(&format!(
        "<h2>Topology</h2>\n<code>{}</code>\n</html>\n",
        escape(&plan.fingerprint)
    ));
    page
}

fn map(page: &mut String, plan: &ResolvedPlan) {
    page.push_str("<h2>Map</h2>\n");
    for (node, cpus) in plan_facts::by_node(plan) {
        if let Some(node) = node {
            page.push_str(&format!("<p>Memory node {node}</p>\n"));
        }
        page.push_str("<div class=\"map\">");
        for cpu in cpus {
            let owner = cpu.owner.clone().unwrap_or_else(|| cpu.role.to_string());
            page.push_str(&format!(
                "<span title=\"CPU {}: {}, {}\"><b>{}</b><small>{}</small></span>",
                cpu.cpu,
                escape(&owner),
                cpu.role,
                plan_facts::sign(plan, cpu),
                cpu.cpu
            ));
        }
        page.push_str("</div>\n");
    }
    let legend: Vec<String> = plan_facts::legend(plan)
        .into_iter()
        .map(|(sign, meaning)| format!("<b>{sign}</b> {}", escape(&meaning)))
        .collect();
    page.push_str(&format!("<p>{}</p>\n", legend.join(" · ")));
}

fn findings(page: &mut String, plan: &ResolvedPlan) {
    if plan.findings.is_empty() {
        return;
    }
    page.push_str("<h2>Findings</h2>\n<table>\n");
    for finding in &plan.findings {
        let word = finding.word();
        let waived = finding
            .waived
            .as_ref()
            .map_or_else(String::new, |reason| format!("; waived: {reason}"));
        page.push_str(&format!(
            "<tr><td class=\"{word}\">{word}<td>{}<td>{}{}\n",
            escape(finding.rule()),
            escape(&finding.finding.to_string()),
            escape(&waived)
        ));
    }
    page.push_str("</table>\n");
}

fn table(
    page: &mut String,
    heading: &str,
    header: &[&str],
    rows: impl Iterator<Item = Vec<String>>,
) {
    let rows: Vec<Vec<String>> = rows.collect();
    if rows.is_empty() {
        return;
    }
    page.push_str(&format!("<h2>{heading}</h2>\n<table>\n<tr>"));
    for name in header {
        page.push_str(&format!("<th>{name}"));
    }
    page.push('\n');
    for row in rows {
        page.push_str("<tr>");
        for cell in row {
            page.push_str(&format!("<td>{}", escape(&cell)));
        }
        page.push('\n');
    }
    page.push_str("</table>\n");
}

/// Escapes markup and quotes, and replaces control characters.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in clean(text).chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    escaped
}
