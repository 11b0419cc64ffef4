// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks the fields of a plan that exclude or require each other on any machine. What depends on the
//! machine is a rule.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use rampart_model::{
    CpuRequest, CpuSelector, DomainProgram, KnobChoice, PLAN_SCHEMA_VERSION, Plan, PlannedDomain,
    VirtualCpus, Waiver, nearest,
};
use rampart_rules::{PLAN_RULES, Rule};

use crate::details;
use crate::locations::Step;
use crate::names::{HOUSEKEEPING, is_name};

/// A contradiction between fields, with its location.
#[derive(Debug)]
pub(crate) struct Fault {
    section: &'static str,
    entry: Option<usize>,
    field: Option<Cow<'static, str>>,
    pub(crate) what: String,
    pub(crate) fix: String,
}

impl Fault {
    pub(crate) fn of(
        section: &'static str,
        what: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self {
            section,
            entry: None,
            field: None,
            what: what.into(),
            fix: fix.into(),
        }
    }

    pub(crate) fn field(mut self, field: impl Into<Cow<'static, str>>) -> Self {
        self.field = Some(field.into());
        self
    }

    /// Returns the steps to its location in the file.
    pub(crate) fn steps(&self) -> Vec<Step<'_>> {
        [Step::Field(self.section)]
            .into_iter()
            .chain(self.entry.map(Step::Entry))
            .chain(self.field.as_deref().map(Step::Field))
            .collect()
    }
}

/// Returns the first fault of a plan.
pub(crate) fn first_fault(plan: &Plan) -> Option<Fault> {
    if plan.schema != PLAN_SCHEMA_VERSION {
        return Some(Fault::of(
            "schema",
            format!("schema version {} does not exist", plan.schema),
            format!("write schema = {PLAN_SCHEMA_VERSION}, or remove it"),
        ));
    }
    let mut known: BTreeSet<&str> = BTreeSet::from([HOUSEKEEPING]);
    for (index, domain) in plan.domains.iter().enumerate() {
        if let Some(mut fault) = domain_fault(domain, &known) {
            fault.entry = Some(index);
            return Some(fault);
        }
        known.insert(&domain.name);
    }
    if let Some((index, mut fault)) = crate::cell::network_fault(plan) {
        fault.entry = Some(index);
        return Some(fault);
    }
    if let Some((index, mut fault)) = crate::standby::fault(plan, known) {
        fault.entry = Some(index);
        return Some(fault);
    }
    if let Some(fault) = plan.host.iter().find_map(|(name, choice)| {
        let (what, fix) = rampart_rules::allowed(name, choice).err()?;
        Some(Fault::of("host", what, fix).field(name.clone()))
    }) {
        return Some(fault);
    }
    if let Some(fault) = twice(&plan.host) {
        return Some(fault);
    }
    let bad = |argument: &&String| {
        argument.is_empty() || argument.contains(|c: char| c.is_whitespace() || c.is_control())
    };
    if let Some(argument) = plan.boot.arguments.iter().find(bad) {
        return Some(
            Fault::of(
                "boot",
                format!(
                    "`{}` is not a single kernel argument",
                    argument.escape_debug()
                ),
                "write each argument as a separate entry, without spaces",
            )
            .field("arguments"),
        );
    }
    plan.waivers.iter().enumerate().find_map(|(index, waiver)| {
        let mut fault = waiver_fault(plan, waiver)?;
        fault.entry = Some(index);
        Some(fault)
    })
}

fn domain_fault(domain: &PlannedDomain, known: &BTreeSet<&str>) -> Option<Fault> {
    let fault = |field, what: String, fix: &str| Some(Fault::of("domain", what, fix).field(field));
    let name = &domain.name;
    if !is_name(name) {
        return fault(
            "name",
            format!("`{}` is not a valid name of a domain", name.escape_debug()),
            "use at most 64 letters, digits, `-`, `_` and `.`, starting with a letter or digit; `housekeeping` is reserved",
        );
    }
    if known.contains(name.as_str()) {
        return fault(
            "name",
            format!("two domains have the name `{name}`"),
            "give each domain a unique name",
        );
    }
    kind_fault(domain)
        .or_else(|| cpu_fault(domain, known))
        .or_else(|| details::first_fault(domain))
}

/// Checks for fields that belong to other kinds, and for missing fields.
fn kind_fault(domain: &PlannedDomain) -> Option<Fault> {
    let (name, kind) = (&domain.name, domain.kind);
    if kind.program() == DomainProgram::Image {
        return crate::cell::fault(domain);
    }
    if let Some(field) = crate::cell::only(domain) {
        let what = format!("domain `{name}` of kind {kind} has `{field}`, which belongs to cells");
        return Some(Fault::of("domain", what, "remove it, or write kind = \"cell\"").field(field));
    }
    let guest = kind.program() == DomainProgram::Guest;
    let only_guest = [
        ("vcpus", domain.vcpus.is_some()),
        ("memory", domain.memory.is_some()),
        ("kernel", domain.kernel.is_some()),
        ("initramfs", domain.initramfs.is_some()),
        ("disk", domain.disk.is_some()),
        ("emulator", domain.emulator.is_some()),
        ("cpu-pm", domain.cpu_pm),
        ("hint-dedicated", domain.hint_dedicated),
        ("devices", !domain.devices.is_empty()),
    ];
    let no_guest = [
        (
            "cpus",
            domain.cpus.is_some(),
            "write the guest's CPUs in `vcpus`",
        ),
        (
            "policy",
            domain.policy.is_some(),
            "write the guest's policy in `vcpus`",
        ),
        (
            "threads",
            !domain.threads.is_empty(),
            "a guest's threads are its virtual CPUs and its emulator",
        ),
        (
            "run",
            !domain.run.is_empty(),
            "a guest runs its `kernel` or `disk`",
        ),
    ];
    if guest {
        if let Some((field, _, why)) = no_guest.into_iter().find(|(_, given, _)| *given) {
            let what = format!("domain `{name}` is a guest and has `{field}`");
            return Some(Fault::of("domain", what, why).field(field));
        }
        let missing = [
            (
                "vcpus",
                domain.vcpus.is_none(),
                "write vcpus = { count = 2 }",
            ),
            (
                "memory",
                domain.memory.is_none(),
                "write memory = { size = \"1GiB\" }",
            ),
        ];
        let (field, _, fix) = missing.into_iter().find(|(_, missing, _)| *missing)?;
        return Some(Fault::of(
            "domain",
            format!("the guest `{name}` has no `{field}`"),
            fix,
        ));
    }
    if let Some((field, _)) = only_guest.into_iter().find(|(_, given)| *given) {
        let what = format!("domain `{name}` of kind {kind} has `{field}`, which belongs to guests");
        return Some(Fault::of("domain", what, "remove it, or write kind = \"vm\"").field(field));
    }
    if domain.container.is_some() && kind.program() != DomainProgram::Container {
        let what = format!("domain `{name}` of kind {kind} has `container`");
        return Some(
            Fault::of("domain", what, "remove it, or write kind = \"container\"")
                .field("container"),
        );
    }
    // (uid_t)-1 is no user: chown(2).
    let no_user = domain.owner == Some(u32::MAX);
    if let Some(owner) = domain.owner
        && (!kind.leaves_linux() || no_user)
    {
        let what = format!("domain `{name}` of kind {kind} has `owner = {owner}`");
        let fix = if no_user {
            "write the number that `id -u NAME` prints"
        } else {
            "remove it, or write kind = \"detached\": only CPUs for detached threads have an owner"
        };
        return Some(Fault::of("domain", what, fix).field("owner"));
    }
    if kind.leaves_linux() {
        let of_linux = [
            ("policy", domain.policy.is_some()),
            ("threads", !domain.threads.is_empty()),
            ("service", domain.service.is_some()),
        ];
        if let Some((field, _)) = of_linux.into_iter().find(|(_, given)| *given) {
            let what = format!("domain `{name}` of kind {kind} has `{field}`");
            let fix = "remove it: Linux schedules no thread on CPUs that are taken from it";
            return Some(Fault::of("domain", what, fix).field(field));
        }
    }
    match (&domain.cpus, kind.is_housekeeping()) {
        (None, true) => None,
        (None, false) => Some(Fault::of(
            "domain",
            format!("domain `{name}` has no `cpus`"),
            "write cpus = \"1\", or cpus = { count = 1 }",
        )),
        (Some(CpuRequest::Selector(_)), true) => Some(
            Fault::of(
                "domain",
                format!("domain `{name}` of kind host requests CPUs of its own"),
                "a host domain runs on housekeeping CPUs: list some of them, or remove `cpus`",
            )
            .field("cpus"),
        ),
        _ => None,
    }
}

fn cpu_fault(domain: &PlannedDomain, known: &BTreeSet<&str>) -> Option<Fault> {
    let name = &domain.name;
    let (field, selector, listed) = match (&domain.cpus, &domain.vcpus) {
        (Some(CpuRequest::List(cpus)), _) => ("cpus", None, Some(cpus.clone())),
        (Some(CpuRequest::Selector(selector)), _) => ("cpus", Some(selector.clone()), None),
        (None, Some(VirtualCpus::List(cpus))) => ("vcpus", None, Some(cpus.clone())),
        (None, Some(VirtualCpus::Table(request))) => {
            ("vcpus", Some(request.selector()), request.cpus.clone())
        }
        (None, None) => return None,
    };
    let fault = |what: String, fix: &str| Some(Fault::of("domain", what, fix).field(field));
    if listed.as_ref().is_some_and(|cpus| cpus.is_empty()) {
        return fault(
            format!("domain `{name}` names no CPU"),
            "list at least one, or request them: { count = 1 }",
        );
    }
    let selector = selector?;
    let asks = selector
        != CpuSelector {
            count: selector.count,
            ..CpuSelector::default()
        };
    if listed.is_some() && asks {
        return fault(
            format!("domain `{name}` both lists its CPUs and requests some by property"),
            "keep either `cpus` or the properties",
        );
    }
    if selector.count == 0 {
        return fault(
            format!("domain `{name}` requests 0 CPUs"),
            "write count = 1 or more",
        );
    }
    let unknown = [&selector.same_l3_as, &selector.not_l3_of]
        .into_iter()
        .flatten()
        .find(|other| !known.contains(other.as_str()))?;
    fault(
        format!("domain `{name}` refers to `{unknown}`, which is not an earlier domain"),
        "name `housekeeping` or a domain earlier in the plan",
    )
}

/// Returns the fault of a knob that has two entries under different names.
fn twice(host: &BTreeMap<String, KnobChoice>) -> Option<Fault> {
    let mut names: BTreeMap<&str, &str> = BTreeMap::new();
    host.keys().find_map(|name| {
        let knob = rampart_rules::find(name).ok()?;
        let other = names.insert(knob.name, name)?;
        Some(
            Fault::of(
                "host",
                format!("`{other}` and `{name}` are the same knob"),
                format!("remove one of them; the name of the knob is {}", knob.name),
            )
            .field(name.clone()),
        )
    })
}

/// Replaces the kernel's names of knobs by those of the catalogue. The plan has no fault.
pub(crate) fn with_own_names(mut plan: Plan) -> Plan {
    let host = std::mem::take(&mut plan.host).into_iter();
    plan.host = host
        .map(|(name, choice)| match rampart_rules::find(&name) {
            Ok(knob) => (knob.name.to_owned(), choice),
            Err(_) => (name, choice),
        })
        .collect();
    for waiver in &mut plan.waivers {
        if let Some(rule) = waived_rule(&waiver.rule) {
            rule.id.clone_into(&mut waiver.rule);
        }
    }
    plan
}

/// Returns the rule of a plan with this id, or of the knob with this name.
fn waived_rule(name: &str) -> Option<&'static Rule> {
    let of = |id: &str| PLAN_RULES.iter().find(|rule| rule.id == id);
    of(name).or_else(|| of(rampart_rules::find(name).ok()?.name))
}

fn waiver_fault(plan: &Plan, waiver: &Waiver) -> Option<Fault> {
    let fault = |field, what: String, fix: String| Some(Fault::of("waive", what, fix).field(field));
    let name = &waiver.rule;
    let Some(rule) = waived_rule(name) else {
        let known: Vec<&str> = PLAN_RULES
            .iter()
            .filter(|rule| rule.waivable)
            .map(|rule| rule.id)
            .collect();
        return fault(
            "rule",
            format!("there is no rule `{}`", name.escape_debug()),
            match nearest(name, known.iter().copied()) {
                Some(near) => format!("write rule = \"{near}\""),
                None => format!("the rules are {}", known.join(", ")),
            },
        );
    };
    if !rule.waivable {
        return fault(
            "rule",
            format!("the rule `{name}` cannot be waived: a plan that breaks it cannot work"),
            "change the plan so that it keeps the rule".to_owned(),
        );
    }
    if waiver.reason.trim().is_empty() {
        return fault(
            "reason",
            format!("the waiver of `{name}` has no reason"),
            "write why the rule does not matter here".to_owned(),
        );
    }
    let domain = waiver.domain.as_ref()?;
    if plan.domain(domain).is_some() {
        return None;
    }
    fault(
        "domain",
        format!("the waiver of `{name}` is for `{domain}`, which is not a domain"),
        "name a domain of the plan, or remove `domain`".to_owned(),
    )
}
