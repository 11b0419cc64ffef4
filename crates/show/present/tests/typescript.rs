// SPDX-License-Identifier: Apache-2.0 OR MIT
//! TypeScript types from a JSON Schema, as far as schemars writes it for the elements.
//! Unknown constructs are refused. Descriptions are left out, so that rewording them changes no file.

use std::fmt::Write as _;

use serde_json::{Map, Value};

/// The declarations for the schema's root and every definition in it.
pub(crate) fn types(schema: &Value) -> String {
    let mut text = String::from(
        "// SPDX-License-Identifier: Apache-2.0 OR MIT\n\
         // Written by crates/show/present/tests/page_fixtures.rs from the elements; change those instead.\n",
    );
    let mut definitions: Vec<(String, &Value)> = vec![(name_of(schema), schema)];
    if let Some(map) = schema.get("$defs").and_then(Value::as_object) {
        definitions.extend(
            map.iter()
                .map(|(name, definition)| (name.clone(), definition)),
        );
    }
    for (name, definition) in definitions {
        let _ = writeln!(text, "\nexport type {name} = {};", type_of(definition, ""));
    }
    text
}

fn name_of(schema: &Value) -> String {
    schema
        .get("title")
        .and_then(Value::as_str)
        .expect("the root has a title")
        .to_owned()
}

fn type_of(schema: &Value, indent: &str) -> String {
    let Some(map) = schema.as_object() else {
        return "unknown".to_owned();
    };
    if let Some(target) = map.get("$ref").and_then(Value::as_str) {
        let name = target.rsplit('/').next().expect("a name").to_owned();
        // A variant that has the fields of a structure, and its own name beside them.
        return match map.contains_key("properties") {
            true => format!("{name} & {}", object(map, indent)),
            false => name,
        };
    }
    if let Some(constant) = map.get("const") {
        return constant.to_string();
    }
    if let Some(words) = map.get("enum").and_then(Value::as_array) {
        return words
            .iter()
            .map(Value::to_string)
            .collect::<Vec<_>>()
            .join(" | ");
    }
    for key in ["oneOf", "anyOf"] {
        if let Some(choices) = map.get(key).and_then(Value::as_array) {
            let choices: Vec<String> = choices
                .iter()
                .map(|choice| type_of(choice, indent))
                .collect();
            return choices.join(" | ");
        }
    }
    match map.get("type") {
        Some(Value::String(kind)) => simple(kind, map, indent),
        Some(Value::Array(kinds)) => {
            let kinds: Vec<String> = kinds
                .iter()
                .filter_map(Value::as_str)
                .map(|kind| simple(kind, map, indent))
                .collect();
            kinds.join(" | ")
        }
        _ => panic!("a schema of a kind that is not known here: {schema}"),
    }
}

fn simple(kind: &str, map: &Map<String, Value>, indent: &str) -> String {
    match kind {
        "string" => "string".to_owned(),
        "integer" | "number" => "number".to_owned(),
        "boolean" => "boolean".to_owned(),
        "null" => "null".to_owned(),
        "array" => array(map, indent),
        "object" => object(map, indent),
        _ => panic!("a type that is not known here: {kind}"),
    }
}

fn array(map: &Map<String, Value>, indent: &str) -> String {
    if let Some(items) = map.get("prefixItems").and_then(Value::as_array) {
        let items: Vec<String> = items.iter().map(|item| type_of(item, indent)).collect();
        return format!("[{}]", items.join(", "));
    }
    let item = map
        .get("items")
        .map_or_else(|| "unknown".to_owned(), |items| type_of(items, indent));
    if item.contains([' ', '{']) {
        format!("({item})[]")
    } else {
        format!("{item}[]")
    }
}

fn object(map: &Map<String, Value>, indent: &str) -> String {
    let inner = format!("{indent}  ");
    let required: Vec<&str> = map
        .get("required")
        .and_then(Value::as_array)
        .map(|names| names.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    let Some(properties) = map.get("properties").and_then(Value::as_object) else {
        return "{ [key: string]: never }".to_owned();
    };
    let mut text = String::from("{\n");
    for (name, property) in properties {
        let optional = if required.contains(&name.as_str()) {
            ""
        } else {
            "?"
        };
        let value = type_of(property, &inner);
        let name = quoted(name);
        let _ = writeln!(text, "{inner}{name}{optional}: {value};");
    }
    text + indent + "}"
}

/// Quotes a name that is no identifier.
fn quoted(name: &str) -> String {
    let plain = name
        .chars()
        .all(|character| character.is_ascii_alphanumeric() || character == '_');
    if plain {
        name.to_owned()
    } else {
        format!("\"{name}\"")
    }
}
