// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads a Linux machine and changes it, never before the old value is on disk.
