// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The programs of the domains, as their supervisors write of them. Read leniently: what a file
//! does not say is not known.

use rampart_model::ObservedProgram;
use serde_json::Value;

use super::Watch;
use crate::MachineRoot;
use crate::tasks::TaskStat;

/// The program of each domain that has a file.
pub(super) fn read(root: &MachineRoot, watch: &Watch) -> Vec<ObservedProgram> {
    watch
        .domains
        .iter()
        .filter_map(|name| {
            let text = std::fs::read(watch.programs.join(format!("{name}.json"))).ok()?;
            let file: Value = serde_json::from_slice(&text).ok()?;
            Some(program(root, name, &file))
        })
        .collect()
}

fn program(root: &MachineRoot, name: &str, file: &Value) -> ObservedProgram {
    let word = |value: &Value| match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    };
    let program = file.get("program").unwrap_or(&Value::Null);
    ObservedProgram {
        domain: name.to_owned(),
        process: number(program),
        supervised: file
            .get("supervisor")
            .filter(|supervisor| number(supervisor).is_some())
            .map(|supervisor| is_alive(root, supervisor)),
        alive: is_alive(root, program),
        state: file.get("state").and_then(word).unwrap_or_default(),
        restarts: file
            .get("restarts")
            .and_then(Value::as_u64)
            .unwrap_or_default(),
        last_exit: file.get("last_exit").and_then(word),
    }
}

fn number(of: &Value) -> Option<u32> {
    u32::try_from(of.get("process")?.as_u64()?).ok()
}

/// Whether the process that is named lives: its number may be another's by now.
fn is_alive(root: &MachineRoot, of: &Value) -> bool {
    let Some(process) = number(of) else {
        return false;
    };
    let stat = root
        .text(&format!("proc/{process}/stat"))
        .and_then(|text| TaskStat::parse(&text));
    stat.is_some_and(|stat| {
        let start = of.get("start").and_then(Value::as_u64);
        stat.state != 'Z' && start.is_none_or(|start| start == stat.start)
    })
}
