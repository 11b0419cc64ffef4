// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Renderings of evaluation documents, and the generated files of the page.

mod documents;
mod page_fixtures;
mod renderings;
mod typescript;
