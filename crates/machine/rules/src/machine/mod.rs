// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Judgements of a machine by the rules of the catalogue.

pub(crate) mod assess;
pub(crate) mod check;
pub(crate) mod compare;
pub(crate) mod facts;
pub(crate) mod figures;
pub(crate) mod fix;
pub(crate) mod harm;
pub(crate) mod kernel_command_line;
pub mod readings;
