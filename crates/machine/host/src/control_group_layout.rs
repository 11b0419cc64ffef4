// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which control group hierarchies are mounted.

use crate::groups::Hierarchies;
use crate::kernel::RunningKernel;

/// Control groups of the running machine: `v1`, `v2`, `hybrid` (both) or `none`, as in
/// [`rampart_model::Machine::control_groups`].
#[must_use]
pub fn control_group_layout() -> &'static str {
    Hierarchies::of(&RunningKernel).word()
}
