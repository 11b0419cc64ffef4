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

/// Returns the models, and one with a GICv2, for attacks that use no register of one version alone. It has two security
/// states, as on boards.
pub(crate) fn and_gicv2(models: &[Model]) -> Vec<Model> {
    [models, &GICV2[1..]].concat()
}

/// Returns the models, or only the one that `RAMPART_TEST_MODEL` names, such as `cortex-a76-2` or
/// `cortex-a57-virt-2`. One that is not among `MODELS`, because another QEMU in `PATH` has it, is used where the plain
/// Cortex-A57 is.
pub(crate) fn chosen(models: &[Model]) -> Vec<Model> {
    let Ok(only) = std::env::var("RAMPART_TEST_MODEL") else {
        return models.to_vec();
    };
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
