// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel's tracing directory: finds it, detects its features, and creates an instance in it
//! (kernel documents `trace/ftrace.rst` and `trace/osnoise-tracer.rst`).

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rampart_model::{CpuSet, Finding, Severity};

use super::Source;
use crate::HostError;
use crate::changes::{Changes, Setting};
use crate::journal::Change;
use crate::kernel::Kernel;
use crate::mounts;

/// Usual mount point.
const USUAL_POINT: &str = "/sys/kernel/tracing";

/// The flag of `osnoise/options` without which the tracer does not occupy the CPUs itself, and its
/// events report the noise of any thread (since 6.2).
const WORKLOAD: &str = "OSNOISE_WORKLOAD";
const NO_WORKLOAD: &str = "NO_OSNOISE_WORKLOAD";

/// Buffer of each traced CPU: seconds of a busy CPU's events, which are read ten times a second.
const BUFFER_KIB: &str = "8192";
/// Buffer of the other CPUs: the smallest possible.
const NO_BUFFER_KIB: &str = "4";

/// Events of interrupts, softirqs and threads that every kernel has.
const PLAIN: [&str; 5] = [
    "sched/sched_switch",
    "irq/irq_handler_entry",
    "irq/irq_handler_exit",
    "irq/softirq_entry",
    "irq/softirq_exit",
];

/// Groups of events that only some machines have.
const MACHINE_OWN: [&str; 2] = ["irq_vectors", "ipi"];

/// Returns the mount point of tracefs. Mounts it if it is not mounted.
pub(super) fn find(changes: &mut Changes) -> Result<PathBuf, HostError> {
    let kernel = changes.kernel();
    if let Some(point) = mounts::mounted(&*kernel, "tracefs") {
        return Ok(point);
    }
    let point = PathBuf::from(USUAL_POINT);
    let fix = "use a kernel with CONFIG_FTRACE, or mount tracefs there";
    let action = ("find the kernel's tracing", "mount the kernel's tracing");
    mounts::mount(changes, "tracefs", &point, action, fix)?;
    Ok(point)
}

/// A tracing instance.
#[derive(Debug)]
pub(super) struct Instance {
    pub(super) path: PathBuf,
    pub(super) source: Source,
    pub(super) findings: Vec<Finding>,
}

/// Creates an instance that traces `cpus`, with the osnoise tracer if it can trace any thread.
pub(super) fn start(
    changes: &mut Changes,
    root: &Path,
    cpus: &CpuSet,
) -> Result<Instance, HostError> {
    match osnoise(&*changes.kernel(), root) {
        Ok(()) => {
            let count = changes.count();
            match start_osnoise(changes, root, cpus) {
                Ok(path) => Ok(Instance {
                    path,
                    source: Source::Osnoise,
                    findings: Vec::new(),
                }),
                Err(error) => {
                    let undone = changes.undo_since(count)?;
                    let finding = Finding::new(
                        Severity::Note,
                        root.display().to_string(),
                        format!("cannot use the osnoise tracer: {error}"),
                    );
                    let mut instance = start_plain(changes, root, cpus, finding)?;
                    instance.findings.extend(undone.failed);
                    Ok(instance)
                }
            }
        }
        Err(finding) => start_plain(changes, root, cpus, *finding),
    }
}

/// Checks that the osnoise tracer can trace any thread without disturbing the CPUs or its other users.
fn osnoise(kernel: &dyn Kernel, root: &Path) -> Result<(), Box<Finding>> {
    let finding = |what: &str| {
        Box::new(Finding::new(
            Severity::Note,
            root.display().to_string(),
            format!("{what}; causes are derived from events of the scheduler and of interrupts"),
        ))
    };
    let words = |path: &str| -> Vec<String> {
        let text = kernel.read(&root.join(path)).unwrap_or_default();
        text.split_whitespace().map(str::to_owned).collect()
    };
    if !words("available_tracers")
        .iter()
        .any(|word| word == "osnoise")
    {
        return Err(Box::new(
            finding("this kernel has no osnoise tracer")
                .values("no CONFIG_OSNOISE_TRACER", "CONFIG_OSNOISE_TRACER")
                .fix("use a kernel with that option to see NMIs as causes"),
        ));
    }
    let options = words("osnoise/options");
    if !options
        .iter()
        .any(|word| word == WORKLOAD || word == NO_WORKLOAD)
    {
        return Err(Box::new(
            finding("the osnoise tracer of this kernel traces only its own threads").values(
                "no OSNOISE_WORKLOAD in osnoise/options",
                "Linux 6.2 or later",
            ),
        ));
    }
    let mut tracers = vec![root.join("current_tracer")];
    let instances = root.join("instances");
    let names = kernel.names(&instances);
    tracers.extend(
        names
            .iter()
            .map(|name| instances.join(name).join("current_tracer")),
    );
    let user = tracers.iter().find(|path| {
        let tracer = kernel.read(path).unwrap_or_default();
        matches!(tracer.trim(), "osnoise" | "timerlat")
    });
    match user {
        Some(path) => Err(finding(&format!(
            "another program uses the osnoise tracer by {}",
            path.display()
        ))),
        None => Ok(()),
    }
}

fn start_osnoise(changes: &mut Changes, root: &Path, cpus: &CpuSet) -> Result<PathBuf, HostError> {
    let kernel = changes.kernel();
    let options = root.join("osnoise/options");
    let present = kernel.read(&options).unwrap_or_default();
    if present.split_whitespace().any(|word| word == WORKLOAD) {
        changes.prepare(vec![Change::Switch {
            path: options.clone(),
            on: WORKLOAD.to_owned(),
            off: NO_WORKLOAD.to_owned(),
        }])?;
        changes.step()?;
        write(&*kernel, &options, NO_WORKLOAD)?;
    }
    let on_cpus = root.join("osnoise/cpus");
    let mut answers = changes.set(&[Setting::list(&on_cpus, cpus)])?;
    if let Some(Err(cause)) = answers.pop() {
        return Err(HostError::file(
            "set the traced CPUs in",
            &on_cpus,
            cause,
            FIX,
        ));
    }
    let path = make_instance(changes, root, cpus)?;
    write(&*kernel, &path.join("events/osnoise/enable"), "1")?;
    write(&*kernel, &path.join("current_tracer"), "osnoise")?;
    write(&*kernel, &path.join("tracing_on"), "1")?;
    Ok(path)
}

fn start_plain(
    changes: &mut Changes,
    root: &Path,
    cpus: &CpuSet,
    finding: Finding,
) -> Result<Instance, HostError> {
    let kernel = changes.kernel();
    let path = make_instance(changes, root, cpus)?;
    let events = path.join("events");
    for event in PLAIN {
        write(&*kernel, &events.join(event).join("enable"), "1")?;
    }
    // Events of some machines only: interrupts without a number, and NMIs.
    for group in MACHINE_OWN {
        for event in kernel.names(&events.join(group)) {
            if event.ends_with("_entry") || event.ends_with("_exit") {
                let _ = kernel.write(&events.join(group).join(event).join("enable"), "1");
            }
        }
    }
    let _ = kernel.write(&events.join("nmi/nmi_handler/enable"), "1");
    write(&*kernel, &path.join("tracing_on"), "1")?;
    Ok(Instance {
        path,
        source: Source::Events,
        findings: vec![finding],
    })
}

/// Creates an instance that is configured and does not trace yet. Its settings are removed with it.
fn make_instance(changes: &mut Changes, root: &Path, cpus: &CpuSet) -> Result<PathBuf, HostError> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let kernel = changes.kernel();
    let path = loop {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("instances/rampart-{}-{count}", std::process::id());
        let path = root.join(name);
        if !kernel.exists(&path) {
            break path;
        }
    };
    changes.prepare(vec![Change::TracingInstance { path: path.clone() }])?;
    changes.step()?;
    kernel
        .make_directory(&path)
        .map_err(|cause| HostError::file("create the tracing instance", &path, cause, FIX))?;
    let set = |file: &str, value: &str| write(&*kernel, &path.join(file), value);
    set("tracing_on", "0")?;
    // The clock that meters use.
    set("trace_clock", "mono")?;
    set("tracing_cpumask", &cpus.to_mask())?;
    set("buffer_size_kb", NO_BUFFER_KIB)?;
    for cpu in cpus.iter() {
        set(&format!("per_cpu/cpu{cpu}/buffer_size_kb"), BUFFER_KIB)?;
    }
    // For shorter lines; longer ones can be read too.
    let _ = kernel.write(&path.join("options/irq-info"), "0");
    Ok(path)
}

const FIX: &str = "see `dmesg` and error_log in its directory; `rampart release` removes instances of killed runs";

fn write(kernel: &dyn Kernel, path: &Path, value: &str) -> Result<(), HostError> {
    kernel
        .write(path, value)
        .map_err(|cause| HostError::file("set up tracing in", path, cause, FIX))
}
