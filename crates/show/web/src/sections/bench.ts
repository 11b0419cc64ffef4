// SPDX-License-Identifier: Apache-2.0 OR MIT
// Where the evaluation ran, and on a simulated machine what is real there and what is not.
import { element, row, table } from "../dom";
import type { Bench } from "../evaluation";
import { plural } from "../figures";
import { type Simulated, simulated } from "../select";

/** The banner; null where it ran here. */
export function bench(of: Bench | undefined): HTMLElement | null {
  const machine = simulated(of);
  if (machine !== null) return simulation(machine);
  if (typeof of !== "object" || !("ssh" in of)) return null;
  return element(
    "p",
    { class: "state" },
    "Measured on ",
    element("b", {}, of.ssh.host),
    ", over ssh: the same programs, carried there and removed again.",
  );
}

function simulation({ emulator, kernel, packages }: Simulated): HTMLElement {
  return element(
    "div",
    { class: "alert grave bench", role: "note" },
    element("strong", {}, "Simulated machine: who disturbs whom is real, microseconds are not."),
    element(
      "div",
      { class: "real" },
      element(
        "div",
        {},
        element("b", {}, "Real here"),
        element(
          "ul",
          { class: "plain" },
          element("li", {}, `Linux ${kernel} with its scheduler, its locks and its interrupts`),
          element("li", {}, "containers, and KVM where this kernel has it"),
          element("li", {}, "whether a block of known length is seen elsewhere, and what dies in a crash"),
        ),
      ),
      element(
        "div",
        {},
        element("b", {}, "Not real"),
        element(
          "ul",
          { class: "plain" },
          element("li", {}, "microseconds: the processors are software and share those below"),
          element("li", {}, "caches, memory buses, idle states and frequencies"),
          element("li", {}, "so no deadline is judged, and no latency is one of any hardware"),
        ),
      ),
    ),
    element("p", { class: "what" }, emulator),
    packages.length > 0 &&
      element(
        "details",
        {},
        element("summary", {}, `Built from ${plural(packages.length, "package")}`),
        table(
          "Packages of the simulated machine",
          ["package", "version"],
          [],
          [packages.map(([name, version]) => row([element("code", {}, name), version]))],
        ),
      ),
  );
}
