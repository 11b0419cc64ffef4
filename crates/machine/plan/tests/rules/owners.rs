// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rules of ownership.

use rampart_model::DetachDriver;

use super::*;

#[test]
fn reports_cpus_that_are_absent_or_offline() {
    let mut quad = quad();
    quad.topology.possible = cpus("0-7");
    let finding = resolve(&quad, &task("\"3-5\""));
    let finding = one(&finding, "cpu-exists");
    assert!(finding.impossible);
    assert_eq!(finding.domain.as_deref(), Some("a"));
    assert!(
        finding
            .finding
            .to_string()
            .contains("cpu4/online; echo 1 > "),
        "{}",
        finding.finding
    );
    let resolved = resolve(
        &quad,
        &format!("[machine]\nhousekeeping = \"0,9\"\n{}", task("\"1\"")),
    );
    assert!(
        one(&resolved, "cpu-exists")
            .finding
            .to_string()
            .contains("CPU 9")
    );
    assert!(broken(&resolve(&quad, &task("\"3\"")), "cpu-exists").is_empty());
    assert!(
        !broken(
            &resolve(&quad, &guest("\"2\"", "emulator = \"8\"")),
            "cpu-exists"
        )
        .is_empty()
    );
}

#[test]
fn housekeeping_has_the_boot_cpu_and_no_cpu_of_a_domain() {
    let quad = quad();
    let rule = "housekeeping";
    let all = resolve(&quad, &task("\"0-3\""));
    assert!(one(&all, rule).impossible);
    let boot = resolve(&quad, &task("\"0\""));
    assert!(one(&boot, rule).finding.to_string().contains("boot CPU"));
    let both = resolve(
        &quad,
        &format!("[machine]\nhousekeeping = \"0-2\"\n{}", task("\"2-3\"")),
    );
    let finding = one(&both, rule);
    assert_eq!(
        finding.finding.fix.as_deref(),
        Some("write housekeeping = \"0-1\"")
    );
    assert_eq!(
        (both.housekeeping, both.real_time),
        (cpus("0-1"), cpus("2-3"))
    );
    let unassigned = resolve(
        &quad,
        &format!("[machine]\nhousekeeping = \"0\"\n{}", task("\"3\"")),
    );
    assert!(broken(&unassigned, rule).is_empty());
    assert_eq!(broken(&unassigned, "unassigned-cpu").len(), 1);
    let host = "[machine]\nhousekeeping = \"0-2\"\n[[domain]]\nname = \"h\"\nkind = \"host\"\ncpus = \"1\"\n";
    assert!(
        !resolve(&quad, &host.replace("0-2", "0"))
            .findings
            .iter()
            .all(|f| f.rule() != rule)
    );
    assert!(broken(&resolve(&quad, &host.replace("0-2", "0-3")), rule).is_empty());
    assert!(broken(&resolve(&quad, &task("\"1\"")), rule).is_empty());
}

#[test]
fn a_cpu_has_one_owner() {
    let quad = quad();
    let second = task("\"2-3\"").replace("\"a\"", "\"b\"");
    let resolved = resolve(&quad, &format!("{}{second}", task("\"1-2\"")));
    let finding = one(&resolved, "one-owner");
    assert_eq!(finding.domain.as_deref(), Some("b"));
    assert!(finding.finding.to_string().contains("CPU 2 of `a` too"));
    assert_eq!(resolved.domains[1].cpus, cpus("3"));
    // The third claimant gets one finding for each of the other two.
    let third = task("\"1-3\"").replace("\"a\"", "\"c\"");
    let three = resolve(&quad, &format!("{}{second}{third}", task("\"1-2\"")));
    let shared: Vec<String> = broken(&three, "one-owner")
        .iter()
        .filter(|finding| finding.domain.as_deref() == Some("c"))
        .filter_map(|finding| finding.finding.found.clone())
        .collect();
    assert_eq!(shared, ["CPUs 1-2 of `a` too", "CPU 3 of `b` too"]);
    let apart = task("\"3\"").replace("\"a\"", "\"b\"");
    assert!(
        broken(
            &resolve(&quad, &format!("{}{apart}", task("\"1-2\""))),
            "one-owner"
        )
        .is_empty()
    );
    let thread = format!(
        "{}threads = [{{ match = \"x*\", cpus = \"3\" }}]\n",
        task("\"1-2\"")
    );
    assert!(
        one(&resolve(&quad, &thread), "one-owner")
            .finding
            .to_string()
            .contains("CPU 3")
    );
}

#[test]
fn detached_threads_need_a_driver_for_the_architecture_and_cannot_have_cpu_0() {
    let detached =
        |cpus: &str| format!("[[domain]]\nname = \"a\"\nkind = \"detached\"\ncpus = \"{cpus}\"\n");
    let mut quad = quad();
    let resolved = resolve(&quad, &detached("3"));
    for rule in ["detached-machine", "detached-driver"] {
        assert!(broken(&resolved, rule).is_empty(), "{rule}");
    }
    // Their CPU is neither a real-time CPU of Linux nor housekeeping.
    assert!(resolved.real_time.is_empty());
    assert_eq!(resolved.housekeeping.to_string(), "0-2");
    assert!(one(&resolve(&quad, &detached("0")), "detached-machine").impossible);
    let with = |driver| Environment {
        detach_driver: Some(driver),
        ..Environment::default()
    };
    for (driver, words) in [
        (DetachDriver::NotInstalled, "dkms install rampart/"),
        (DetachDriver::NoModules, "boot the distribution's kernel"),
    ] {
        let resolved = resolve_in(&quad, &detached("3"), &with(driver));
        let found = one(&resolved, "detached-driver").finding.to_string();
        assert!(found.contains(words), "{found}");
    }
    let without = with(DetachDriver::NotInstalled);
    for driver in [DetachDriver::Installed, DetachDriver::Loaded] {
        let resolved = resolve_in(&quad, &detached("3"), &with(driver));
        assert!(broken(&resolved, "detached-driver").is_empty());
    }
    assert!(
        broken(
            &resolve_in(&quad, &task("\"3\""), &without),
            "detached-driver"
        )
        .is_empty()
    );
    quad.architecture = "riscv64".to_owned();
    assert!(one(&resolve(&quad, &detached("3")), "detached-machine").impossible);
}

#[test]
fn cells_need_arm64_and_cannot_have_cpu_0() {
    let cell = |cpus: &str| {
        format!(
            "[[domain]]\nname = \"press\"\nkind = \"cell\"\ncpus = \"{cpus}\"\nmemory = {{ size = \"16MiB\" }}\nimage = \"/press.bin\"\n"
        )
    };
    let mut quad = quad();
    assert!(one(&resolve(&quad, &cell("3")), "cell-machine").impossible);
    quad.architecture = "aarch64".to_owned();
    let resolved = resolve(&quad, &cell("3"));
    assert!(broken(&resolved, "cell-machine").is_empty());
    // A cell's CPU is neither a real-time CPU of Linux nor housekeeping.
    assert!(resolved.real_time.is_empty());
    assert_eq!(resolved.housekeeping.to_string(), "0-2");
    let first = resolve(&quad, &cell("0"));
    let finding = one(&first, "cell-machine");
    assert!(finding.impossible, "{finding:?}");
}

#[test]
fn shares_of_the_cache_of_cells_fit_and_every_cell_has_one() {
    let cell = |cpu: u32, share: &str| {
        format!(
            "[[domain]]\nname = \"cell-{cpu}\"\nkind = \"cell\"\ncpus = \"{cpu}\"\nmemory = {{ size = \"16MiB\" }}\nimage = \"/press.bin\"\n{share}"
        )
    };
    let share = |percent: u32| format!("cell = {{ cache-percent = {percent} }}\n");
    let mut quad = quad();
    quad.architecture = "aarch64".to_owned();
    let both = |one: &str, other: &str| resolve(&quad, &(cell(2, one) + &cell(3, other)));
    for (one, other) in [(share(50), share(50)), (String::new(), String::new())] {
        let resolved = both(&one, &other);
        assert!(broken(&resolved, "cell-cache-share").is_empty());
        assert!(broken(&resolved, "cell-without-cache-share").is_empty());
    }
    let more = both(&share(50), &share(51));
    let finding = one(&more, "cell-cache-share");
    assert!(finding.impossible && finding.finding.to_string().contains("101 %"));
    let without = both(&share(50), "");
    let finding = one(&without, "cell-without-cache-share")
        .finding
        .to_string();
    assert!(
        finding.contains("cell-3") && finding.contains("all colours"),
        "{finding}"
    );
    let text = cell(3, &share(101));
    let error = rampart_plan::parse(&text, "plan.toml").expect_err("more than 100 %");
    assert!(error.to_string().contains("1 to 100 percent"), "{error}");
    let text = cell(3, "cache = { ways = 4 }\n");
    let error = rampart_plan::parse(&text, "plan.toml").expect_err("resctrl's field");
    assert!(error.to_string().contains("cache-percent = 25"), "{error}");
}

#[test]
fn reports_how_the_topology_differs() {
    let before = threads();
    let print = rampart_plan::fingerprint(&before);
    let plan = format!("[machine]\nfingerprint = \"{print}\"\n{}", task("\"2\""));
    assert!(broken(&resolve(&before, &plan), "same-machine").is_empty());
    // The threads were switched off in the firmware: CPU numbers moved.
    let after = machine(&["0", "1", "2", "3"], &["0-1", "2-3"], &["0-1", "2-3"]);
    let resolved = resolve(&after, &plan);
    let finding = one(&resolved, "same-machine");
    assert!(finding.impossible);
    let text = finding.finding.to_string();
    assert!(
        text.contains("the online CPUs were 0-7 and are now 0-3")
            || text.contains("online CPUs were 0-7 and are 0-3"),
        "{text}"
    );
    assert!(
        text.contains(
            "threads of one core were CPUs 0-1 and 2-3 and 4-5 and 6-7, and are now none"
        ),
        "{text}"
    );
    let edited = plan.replace("siblings=0-1", "siblings=0,2");
    assert!(!broken(&resolve(&before, &edited), "same-machine").is_empty());
    for rubbish in ["", "x", "topology-9:0 a=b", "topology-1:0 online=0-7"] {
        let text = format!("[machine]\nfingerprint = \"{rubbish}\"\n");
        assert_eq!(
            broken(&resolve(&before, &text), "same-machine").len(),
            1,
            "{rubbish}"
        );
    }
}

#[test]
fn a_pci_function_of_a_cell_has_no_driver_of_linux() {
    let rule = "cell-function-driver";
    let mut quad = quad();
    quad.architecture = "aarch64".to_owned();
    let plan = "[[domain]]\nname = \"press\"\nkind = \"cell\"\ncpus = \"3\"\nmemory = { size = \"16MiB\" }\nimage = \"/press.bin\"\ndevices = [\"0000:0A:00.0\"]\n";
    let mut around = Environment::default();
    let mut bind = |address: &str, driver: &str| {
        let drivers = &mut around.device_drivers;
        drivers.insert(address.to_owned(), driver.to_owned());
        resolve_in(&quad, plan, &around)
    };
    assert!(broken(&bind("0000:01:00.0", "e1000e"), rule).is_empty());
    let bound = bind("0000:0a:00.0", "nvme");
    let text = one(&bound, rule).finding.to_string();
    let fix = "echo 0000:0a:00.0 >/sys/bus/pci/drivers/nvme/unbind";
    assert!(text.contains("press") && text.contains(fix), "{text}");
}
