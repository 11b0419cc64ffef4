// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Instead of `smmu.rs` in the images for machines without an SMMU: nothing.

use rampart_hypervisor_core::bus::Access;
use rampart_hypervisor_core::configuration::Configuration;
use rampart_hypervisor_core::interface::Outcome;

use crate::machine::Machine;
use crate::manager::Manager;
use crate::stage1::Mapping;

type Done = Result<(), Outcome>;

pub(crate) const fn map(_: &Configuration<'_>, _: &mut Mapping) -> Done {
    Ok(())
}

pub(crate) const fn prepare(_: &Machine, _: &Configuration<'_>, _: &mut Manager) -> Done {
    Ok(())
}

pub(crate) const fn enable() -> Done {
    Ok(())
}

pub(crate) const fn disable() -> bool {
    true
}

pub(crate) const fn forget_translations(_: u32) {}

pub(crate) const fn is_intact() -> Done {
    Ok(())
}

pub(crate) const fn end_dma_of_root() -> Done {
    Ok(())
}

pub(crate) const fn block(_: u32) -> Done {
    Ok(())
}

pub(crate) const fn grant(_: u32, _: &mut Manager) {}

pub(crate) const fn take(_: u32, _: &mut Manager) -> Done {
    Ok(())
}

pub(crate) const fn give_back(_: &Machine, _: u32, _: &mut Manager) {}

pub(crate) const fn report(_: &Machine) {}

pub(crate) const fn root_access(_: &Access) -> Option<u64> {
    None
}
