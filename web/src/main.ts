// SPDX-License-Identifier: Apache-2.0 OR MIT
const text = document.getElementById("evaluation")?.textContent ?? "";
document.getElementById("page")?.append(text.slice(0, 100));
