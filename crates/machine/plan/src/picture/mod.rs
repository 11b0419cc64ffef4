// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who owns what, as a picture: for a terminal, and as one page. Pure functions of the resolved
//! plan.

mod page;
mod parts;
mod text;

pub use page::html;
pub use text::{PictureOptions, finding_line, terminal};
