// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machines of QEMU on which the tests of hostile roots and cells run.

/// A processor of QEMU, and the interrupt controller beside it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Model {
    pub(crate) cpu: &'static str,
    /// Whether the controller has two security states.
    pub(crate) two_security_states: bool,
    /// Whether it is a GICv2, instead of a GICv3.
    pub(crate) gicv2: bool,
    /// Whether PCI functions are behind an SMMUv3 with stage 2, which QEMU 10 has.
    pub(crate) smmu: bool,
    /// The firmware at EL3 (`scripts/firmware`); without one QEMU implements PSCI.
    pub(crate) firmware: Option<&'static str>,
}

impl Model {
    pub(crate) fn name(&self) -> String {
        let controller = if self.gicv2 {
            "-gicv2"
        } else if self.smmu {
            "-smmu"
        } else {
            ""
        };
        let firmware = self.firmware.map(|firmware| format!("-{firmware}"));
        let states = 1 + u32::from(self.two_security_states);
        format!(
            "{}{controller}{}-{states}",
            self.cpu,
            firmware.unwrap_or_default()
        )
    }
}

/// The processors that QEMU 7.2 has: without and with VHE, and one with all features. `max` is not there with two
/// security states: on CPUs that PSCI starts, QEMU traps registers of new features to EL3, where nothing is.
pub(crate) const MODELS: [Model; 7] = {
    const fn model(cpu: &'static str, two_security_states: bool) -> Model {
        Model {
            cpu,
            two_security_states,
            gicv2: false,
            smmu: false,
            firmware: None,
        }
    }
    [
        model("cortex-a57", false),
        model("cortex-a57", true),
        model("max", false),
        model("cortex-a76", false),
        model("cortex-a76", true),
        model("neoverse-n1", false),
        model("neoverse-n1", true),
    ]
};

/// The same, with the newest processors first: a test that begins with them meets VHE by default.
pub(crate) const NEWEST_FIRST: [Model; 7] = [
    MODELS[2], MODELS[4], MODELS[6], MODELS[5], MODELS[3], MODELS[1], MODELS[0],
];

/// The machine with an SMMU, with one security state and with two.
pub(crate) const SMMU: [Model; 2] = [
    Model {
        smmu: true,
        ..MODELS[0]
    },
    Model {
        smmu: true,
        ..MODELS[1]
    },
];

/// The machines with a GICv2.
pub(crate) const GICV2: [Model; 2] = [
    Model {
        gicv2: true,
        ..MODELS[0]
    },
    Model {
        gicv2: true,
        ..MODELS[1]
    },
];

/// Machines with Trusted Firmware-A, whose distributor has two security states: SCR_EL3.FIQ is 0, or 1 for SDEI.
pub(crate) const FIRMWARE: [Model; 2] = [
    Model {
        firmware: Some("virt"),
        ..MODELS[1]
    },
    Model {
        firmware: Some("virt-sdei"),
        ..MODELS[1]
    },
];

/// Returns the models, and those with firmware.
pub(crate) fn and_firmware(models: &[Model]) -> Vec<Model> {
    [models, &FIRMWARE].concat()
}

/// Returns the models, and those with a GICv2, for attacks that use no register of one version alone.
pub(crate) fn and_gicv2(models: &[Model]) -> Vec<Model> {
    [models, &GICV2].concat()
}

/// The environment variable of a single model, such as `cortex-a76-2` or `cortex-a57-virt-2`.
const SINGLE: &str = "RAMPART_TEST_MODEL";
/// The environment variable that is `all` if tests meet all of their models.
const SEVERAL: &str = "RAMPART_TEST_MODELS";

/// Returns the models that a test meets: the first of each kind; all of them with `RAMPART_TEST_MODELS=all`; or only the
/// one that `RAMPART_TEST_MODEL` names.
pub(crate) fn chosen(models: &[Model]) -> Vec<Model> {
    if let Ok(only) = std::env::var(SINGLE) {
        return named(models, &only);
    }
    match std::env::var(SEVERAL) {
        Ok(all) if all == "all" => models.to_vec(),
        Ok(other) => panic!("{SEVERAL} is {other:?}, expected: all"),
        Err(_) => one_of_each_kind(models),
    }
}

/// Returns the first model of each kind: interrupt controller, number of security states, SMMU and firmware.
fn one_of_each_kind(models: &[Model]) -> Vec<Model> {
    let kind = |model: &Model| {
        (
            model.gicv2,
            model.two_security_states,
            model.smmu,
            model.firmware,
        )
    };
    let mut first: Vec<Model> = Vec::new();
    for model in models {
        if first.iter().all(|other| kind(other) != kind(model)) {
            first.push(*model);
        }
    }
    first
}

/// Returns the model of this name. One that is not among [`MODELS`], because another QEMU in `PATH` has it, is used where
/// the plain Cortex-A57 is.
fn named(models: &[Model], only: &str) -> Vec<Model> {
    let is_named = |model: &&Model| model.name() == only;
    if GICV2
        .iter()
        .chain(&SMMU)
        .chain(&FIRMWARE)
        .any(|model| is_named(&model))
    {
        return models
            .iter()
            .copied()
            .filter(|model| is_named(&model))
            .collect();
    }
    let is_known = MODELS.iter().any(|model| model.name() == only);
    let (cpu, states) = only.rsplit_once('-').expect("a name and 1 or 2");
    let other = Model {
        cpu: cpu.to_owned().leak(),
        two_security_states: states == "2",
        gicv2: false,
        smmu: false,
        firmware: None,
    };
    let fits = |model: &&Model| {
        !model.gicv2
            && !model.smmu
            && model.firmware.is_none()
            && model.two_security_states == other.two_security_states
            && (model.cpu == cpu || !is_known && model.cpu == MODELS[0].cpu)
    };
    models.iter().filter(fits).map(|_| other).collect()
}

fn names(models: &[Model]) -> Vec<String> {
    models.iter().map(Model::name).collect()
}

#[test]
fn a_test_meets_the_first_model_of_each_kind() {
    let all = and_gicv2(&MODELS);
    assert_eq!(
        names(&one_of_each_kind(&all)),
        [
            "cortex-a57-1",
            "cortex-a57-2",
            "cortex-a57-gicv2-1",
            "cortex-a57-gicv2-2"
        ]
    );
    let newest = and_firmware(&NEWEST_FIRST);
    assert_eq!(
        names(&one_of_each_kind(&newest)),
        [
            "max-1",
            "cortex-a76-2",
            "cortex-a57-virt-2",
            "cortex-a57-virt-sdei-2"
        ]
    );
    assert_eq!(names(&one_of_each_kind(&SMMU)), names(&SMMU));
}

#[test]
fn a_model_is_chosen_by_its_name() {
    let all = and_gicv2(&and_firmware(&MODELS));
    for model in &all {
        assert_eq!(names(&named(&all, &model.name())), [model.name()]);
    }
    // That of another QEMU.
    assert_eq!(names(&named(&all, "cortex-a710-2")), ["cortex-a710-2"]);
    assert!(named(&GICV2, "max-1").is_empty());
}
