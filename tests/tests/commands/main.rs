// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command without changing the machine: arguments, documents, plans, exports, remote machines.

mod active_plan;
mod arguments;
mod dependencies;
mod describe;
mod documentation;
mod exports;
mod libvirt;
mod make;
mod plan;
mod ssh;
