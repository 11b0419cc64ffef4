// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A resolved plan: the owners of CPUs, interrupts, caches and memory, as elements and as a page.

mod elements;
mod page;
mod plan_facts;

pub use elements::plan_picture;
pub(crate) use elements::{item, lines_table};
pub use page::plan_page;
