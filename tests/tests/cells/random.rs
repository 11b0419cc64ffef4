// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random steps of the root and of cells at once.
