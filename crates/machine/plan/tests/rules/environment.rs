// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rules of limits, other tuning software, network queues and settings.

use super::*;

#[test]
fn reports_limits_of_the_starting_process() {
    let quad = quad();
    let rule = "resource-limits";
    let with = |limits| Environment {
        limits: Some(limits),
        ..Environment::default()
    };
    let plain = ResourceLimits {
        locked_memory: Some(8 << 20),
        ..ResourceLimits::default()
    };
    let plan = task("\"3\"");
    assert_eq!(
        broken(&resolve_in(&quad, &plan, &with(plain)), rule).len(),
        2
    );
    let root = ResourceLimits {
        may_schedule: true,
        may_lock: true,
        ..plain
    };
    assert!(found(&resolve_in(&quad, &plan, &with(root)), rule).is_empty());
    let raised = ResourceLimits {
        locked_memory: None,
        real_time_priority: 10,
        ..plain
    };
    assert!(found(&resolve_in(&quad, &plan, &with(raised)), rule).is_empty());
    let lower = ResourceLimits {
        real_time_priority: 9,
        ..raised
    };
    assert!(
        one(&resolve_in(&quad, &plan, &with(lower)), rule)
            .finding
            .to_string()
            .contains("limit 9")
    );
    let deadline = plan.replace("{ fifo = 10 }", "\"deadline:1ms/2ms/2ms\"");
    assert!(
        one(&resolve_in(&quad, &deadline, &with(raised)), rule)
            .finding
            .to_string()
            .contains("CAP_SYS_NICE")
    );
    let bounded = ResourceLimits {
        locked_memory: Some(1 << 30),
        may_schedule: true,
        ..plain
    };
    assert_eq!(
        broken(
            &resolve_in(&quad, &guest("\"3\"", ""), &with(bounded)),
            rule
        )
        .len(),
        1
    );
    assert_eq!(
        found(&resolve(&quad, &plan), rule)[0].finding.severity,
        Severity::Note
    );
}

#[test]
fn reports_other_tuning_software() {
    let quad = quad();
    let rule = "other-managers";
    let with = |names: &[&str]| Environment {
        managers: Some(names.iter().map(|name| (*name).to_owned()).collect()),
        ..Environment::default()
    };
    let plan = task("\"3\"");
    assert!(
        one(
            &resolve_in(&quad, &plan, &with(&["irqbalance", "stalld"])),
            rule
        )
        .finding
        .to_string()
        .contains("irqbalance")
    );
    assert!(found(&resolve_in(&quad, &plan, &with(&[])), rule).is_empty());
    assert_eq!(
        found(&resolve(&quad, &plan), rule)[0].finding.severity,
        Severity::Note
    );
}

#[test]
fn reports_too_many_network_queues() {
    let quad = quad();
    let rule = "network-queues";
    let with = |queues| Environment {
        network_queues: Some(vec![NetworkQueues {
            interface: "eth0".to_owned(),
            queues,
        }]),
        interrupts: Some(vec![Interrupt {
            number: 24,
            action: "eth0-rx-0".to_owned(),
            chip: "PCI-MSI".to_owned(),
            name: "edge".to_owned(),
            cpus: None,
        }]),
        ..Environment::default()
    };
    let plan = task("\"2-3\"");
    let resolved = resolve_in(&quad, &plan, &with(3));
    assert!(
        one(&resolved, rule)
            .finding
            .to_string()
            .contains("ethtool -L eth0 combined 2")
    );
    assert!(broken(&resolve_in(&quad, &plan, &with(2)), rule).is_empty());
    let owned = format!("{plan}interrupts = [{{ action = \"eth0-*\", chip = \"PCI*\" }}]\n");
    let resolved = resolve_in(&quad, &owned, &with(3));
    assert!(broken(&resolved, rule).is_empty());
    assert_eq!(resolved.interrupts[0].owner.as_deref(), Some("a"));
    // The interrupts of eth0 are not those of eth.
    let mut other = with(3);
    for queues in other.network_queues.iter_mut().flatten() {
        queues.interface = "eth".to_owned();
    }
    assert_eq!(broken(&resolve_in(&quad, &owned, &other), rule).len(), 1);
    assert_eq!(resolved.interrupts[0].cpus, cpus("2-3"));
}

#[test]
fn reports_settings_that_rampart_cannot_write() {
    let quad = quad();
    let rule = "host-settings";
    let with = |more: &str| resolve(&quad, &format!("{}[host]\n{more}\n", task("\"3\"")));
    for knob in [
        "preempt-rt",
        "firmware-interrupts",
        "irqbalance",
        "guest-memory",
    ] {
        let resolved = with(&format!("{knob} = \"apply\""));
        let text = one(&resolved, rule).finding.to_string();
        assert!(
            text.contains(&format!("write {knob} = \"expect\"")),
            "{text}"
        );
        assert!(found(&with(&format!("{knob} = \"expect\"")), rule).is_empty());
    }
    for knob in [
        "governor",
        "nohz-full",
        "rcuc-priority",
        "rcuo-affinity",
        "default",
    ] {
        assert!(
            found(&with(&format!("{knob} = \"apply\"")), rule).is_empty(),
            "{knob}"
        );
    }
}
