// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One QEMU process: started so that it cannot outlive us, spoken with over QMP, its console kept as a log.
