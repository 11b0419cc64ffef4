// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory of cells by colours of a cache: two cells divide one range of memory page by page, and neither reaches a
//! page of the other; and the lines of a modelled cache that they evict from each other (`benchmarks/cache_model.c`).

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::File;
use std::os::unix::fs::FileExt as _;

use rampart_hypervisor_cells::remote::BEGUN;
use rampart_hypervisor_core::configuration::build::Blob;
use rampart_hypervisor_core::format::{MemoryFlags, Refusal};
use rampart_hypervisor_core::interface::{CellState, Hypercall, Outcome, StopReason};
use rampart_tests::programs::qemu_plugin;

use crate::machine::{
    Attacked, Cell, DATA, LOAD, MODELS, Machine, Model, ONE, OTHER, PRIVATE, STORE, ensure, name,
    on, on_with_options, region, root, system,
};

/// The range of memory that the cells divide, and its end.
const RANGE: u64 = 0x6400_0000;
const RANGE_BYTES: u64 = 4 << 20;
const PAGE: u64 = 4096;
/// A quarter and three quarters of 16 colours.
const QUARTER: u32 = 0x000f_000f;
const REST: u32 = !QUARTER;
/// Half of the other three quarters.
const PART: u32 = 0x00f0_00f0;
const PATTERN: u64 = 0xc010_0125_0000_0000;

/// `str x0, [x0]; add x0, x0, x1; cmp x0, x2; b.lo`: writes its address to each page.
const MARK: [u32; 4] = [0xf900_0000, 0x8b01_0000, 0xeb02_001f, 0x54ff_ffa3];
/// `br x0`
const JUMP: u32 = 0xd61f_0000;
/// Reads a word of each line of 64 bytes, x1 bytes from x0 on, x2 times.
const WALK: [u32; 8] = [
    0xaa00_03e3, // mov x3, x0
    0x8b01_0004, // add x4, x0, x1
    0xf940_0065, // ldr x5, [x3]
    0x9101_0063, // add x3, x3, #64
    0xeb04_007f, // cmp x3, x4
    0x54ff_ffa3, // b.lo, the third
    0xf100_0442, // subs x2, x2, #1
    0x54ff_ff21, // b.ne, the first
];

/// Returns the configuration of a hostile cell with data at [`PRIVATE`].
fn with_data(cell: &Cell, physical: u64, bytes: u64, colours: u32) -> Blob {
    let mut blob = cell.blob();
    let mut data = region(physical, PRIVATE, bytes, DATA | MemoryFlags::LOADABLE);
    data.colours = colours;
    blob.memory.push(data);
    blob
}

/// Returns the pages of the range with these colours, by the definition of the format.
fn pages(colours: u32) -> impl Iterator<Item = u64> {
    let all = (RANGE..RANGE + RANGE_BYTES).step_by(PAGE as usize);
    all.filter(move |page| colours >> (page / PAGE % 32) & 1 != 0)
}

/// Checks the first and the last word of the pages of these colours; `value` has the number of the page among
/// them, from 0, and its address.
fn expect(
    machine: &Machine,
    what: &str,
    colours: u32,
    value: impl Fn(u64, u64) -> [u64; 2],
) -> Attacked {
    let bytes = machine.bytes(RANGE, RANGE_BYTES);
    let word = |address: u64| {
        let at = (address - RANGE) as usize;
        u64::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]))
    };
    for (number, page) in pages(colours).enumerate() {
        let found = [page, page + PAGE - 8].map(word);
        let expected = value(number as u64, page);
        ensure(found == expected, || {
            format!("{what}, page {page:#x}: {found:x?}, expected {expected:x?}")
        })?;
    }
    Ok(())
}

fn pattern(_: u64, page: u64) -> [u64; 2] {
    [PATTERN | page, !page]
}

fn marked(number: u64, _: u64) -> [u64; 2] {
    [PRIVATE + number * PAGE, 0]
}

fn zero(_: u64, _: u64) -> [u64; 2] {
    [0, 0]
}

/// Has a cell write the guest address to each page of its data.
fn mark(machine: &Machine, cell: &Cell, blob: &Blob) -> Attacked {
    let end = PRIVATE + blob.memory[1].guest_bytes();
    machine.run(cell.cpu(0), &MARK, &[PRIVATE, PAGE, end])?;
    Ok(())
}

/// Starts a failed cell again.
fn restart(machine: &Machine, number: u64, cell: &Cell, blob: &Blob) -> Attacked {
    machine.load_and_start(number, blob, "rampart-cell-remote")?;
    let begun = machine.wait(|| machine.value(cell.cpu(0), BEGUN) != 0);
    ensure(begun, || format!("cell {} does not begin again", cell.name))
}

#[test]
fn a_cell_reaches_no_page_of_another_colour() {
    on(&[MODELS[3], MODELS[1], MODELS[0]], |machine| {
        let witness = machine.start_witness()?;
        for page in pages(u32::MAX) {
            let [first, last] = pattern(0, page);
            machine.write(page, &first.to_le_bytes());
            machine.write(page + PAGE - 8, &last.to_le_bytes());
        }
        let one = with_data(&ONE, RANGE, RANGE_BYTES, QUARTER);
        let other = with_data(&OTHER, RANGE, RANGE_BYTES, PART);
        let neither = !(QUARTER | PART);
        let number = machine.start_hostile(&ONE, &one)?;
        expect(machine, "wiped for the first cell", QUARTER, zero)?;
        expect(machine, "of nobody", !QUARTER, pattern)?;
        let neighbour = machine.start_hostile(&OTHER, &other)?;
        expect(machine, "wiped for the second cell", PART, zero)?;
        for (cell, blob) in [(&ONE, &one), (&OTHER, &other)] {
            mark(machine, cell, blob)?;
        }
        expect(machine, "of the first cell", QUARTER, marked)?;
        expect(machine, "of the second cell", PART, marked)?;
        expect(machine, "of nobody", neither, pattern)?;

        // The pages of others at their physical addresses, and those around the cell's own guest addresses.
        let end = PRIVATE + one.memory[1].guest_bytes();
        let physical = [QUARTER, PART, neither].map(|colours| pages(colours).next().unwrap_or(0));
        for address in physical
            .into_iter()
            .chain([end, PRIVATE - PAGE, end + RANGE_BYTES])
        {
            for (instruction, reason) in [
                (LOAD, StopReason::MemoryRead),
                (STORE, StopReason::MemoryWrite),
                (JUMP, StopReason::MemoryExecute),
            ] {
                machine.begin(ONE.cpu(0), &[instruction], &[address, 0xbad]);
                let condition = || machine.status().cells[number as usize].condition();
                machine.wait(|| condition().state == CellState::Failed);
                let (state, found) = (condition().state, condition().stop_reason);
                ensure(state == CellState::Failed && found == reason, || {
                    format!("{reason:?} at {address:#x}: {state:?} by {found:?}")
                })?;
                restart(machine, number, &ONE, &one)?;
                expect(machine, "of the second cell", PART, marked)?;
                expect(machine, "of nobody", neither, pattern)?;
            }
        }
        // Wiped before the root loaded it again.
        expect(machine, "of the cell that failed", QUARTER, zero)?;
        mark(machine, &ONE, &one)?;

        for page in pages(u32::MAX).take(64) {
            let owned = (QUARTER | PART) >> (page / PAGE % 32) & 1 != 0;
            let read = machine.load(root(0), page)?;
            let expected = (!owned).then_some(pattern(0, page)[0]);
            ensure(read == expected, || {
                format!("the root reads {read:x?} at {page:#x}, expected {expected:x?}")
            })?;
        }
        machine.manage(Hypercall::CellDestroy, number)?;
        expect(machine, "of the destroyed cell", QUARTER, zero)?;
        expect(machine, "of the second cell", PART, marked)?;
        // A cell with a colour of the other one, or with all of them.
        for colours in [PART, REST, 0] {
            let blob = with_data(&ONE, RANGE, RANGE_BYTES, colours);
            let (outcome, [refusal, index, owner]) = machine.try_create(&blob)?;
            let refused = (outcome, refusal, index, owner);
            let owned = (
                Outcome::Refused as i64,
                Refusal::MemoryOwned as u64,
                1,
                neighbour,
            );
            ensure(refused == owned, || {
                format!("colours {colours:#x}: {} {refused:?}", name(outcome))
            })?;
        }
        machine.manage(Hypercall::CellDestroy, neighbour)?;
        expect(machine, "of the second cell", PART, zero)?;
        for page in pages(u32::MAX) {
            let read = machine.load(root(0), page)?;
            ensure(read.is_some(), || {
                format!("the root does not get {page:#x} back")
            })?;
        }
        machine.expect_no_fault()?;
        witness.check()
    });
}

/// The shape of the modelled cache: 1 MiB, 16 colours.
const SETS: u64 = 1024;
const WAYS: u64 = 16;
const LINE: u64 = 64;
/// The memory that the model caches: the data of the cells, and memory of the root.
const ROOT_DATA: u64 = 0x6600_0000;
const CACHED_END: u64 = 0x6800_0000;
/// What the measured cell reads: as much as a quarter of the cache has. Its neighbours read twice the cache.
const OWN_BYTES: u64 = 256 << 10;
const MUCH_BYTES: u64 = 2 << 20;
/// The measured cell reads its memory so often in one order.
const ROUNDS: u64 = 20;
/// Turns of the measured cell and its neighbour.
const TURNS: u64 = 5;

/// The counts of the model, which change while they are read.
#[derive(Debug)]
struct Counts(File);

impl Counts {
    const CPUS: u64 = 8;

    fn word(&self, index: u64) -> u64 {
        let mut bytes = [0; 8];
        self.0.read_exact_at(&mut bytes, 8 * index).expect("counts");
        u64::from_ne_bytes(bytes)
    }

    /// Empties the modelled cache and begins to count; 0 ends it.
    fn run(&self, number: u64) {
        self.0
            .write_all_at(&number.to_ne_bytes(), 0)
            .expect("counts");
    }

    /// Returns the accesses of a CPU, its misses, and its lines that another CPU has evicted.
    fn of(&self, cpu: u64, by: u64) -> [u64; 3] {
        let first = 2 + cpu * (2 + Self::CPUS);
        [first, first + 1, first + 2 + by].map(|index| self.word(index))
    }
}

/// Has the first cell read its data, in turn with complete passes of another CPU over much memory, if any, which also
/// reads meanwhile. Returns the counts of the first one.
fn measure(
    machine: &Machine,
    counts: &Counts,
    neighbour: Option<(crate::machine::Remote, u64, u64)>,
    run: u64,
) -> Result<[u64; 3], String> {
    let own = ONE.cpu(0);
    counts.run(run);
    if let Some((cpu, _, address)) = neighbour {
        machine.repeat(cpu, &WALK, &[address, MUCH_BYTES, 1]);
    }
    machine.run(own, &WALK, &[PRIVATE, OWN_BYTES, ROUNDS])?;
    if let Some((cpu, ..)) = neighbour {
        for _ in 0..TURNS {
            // The second of them begins after the first cell has read all of its lines.
            machine.wait_for_runs(cpu, 2)?;
            machine.run(own, &WALK, &[PRIVATE, OWN_BYTES, ROUNDS])?;
        }
        machine.end(cpu)?;
    }
    counts.run(0);
    Ok(counts.of(ONE.cpus[0], neighbour.map_or(0, |(_, number, _)| number)))
}

#[test]
fn cells_of_different_colours_evict_no_line_of_each_other() {
    let built = qemu_plugin("cache_model");
    let Some(mut plugin) = built.map(OsString::from) else {
        return;
    };
    let location = tempfile::tempdir().expect("a directory");
    let file = location.path().join("counts");
    plugin.push(format!(
        ",sets={SETS},ways={WAYS},line={LINE},from={RANGE:#x},to={CACHED_END:#x},out={}",
        file.display()
    ));
    let options = [OsString::from("-plugin"), plugin];
    let model = Model { ..MODELS[0] };
    let table = std::cell::RefCell::new(String::new());
    on_with_options(&[model], &system(), &options, |machine| {
        machine.expect_launched()?;
        let counts = Counts(
            File::options()
                .read(true)
                .write(true)
                .open(&file)
                .expect("counts"),
        );
        let other = OTHER.cpus[0];
        let alone = OWN_BYTES / LINE;
        let mut run = 0;
        let mut rows = Vec::new();
        // Contiguous memory, then the same guest addresses by colours.
        for (colours, places) in [
            (
                [0, 0],
                [(RANGE, OWN_BYTES), (RANGE + MUCH_BYTES, MUCH_BYTES)],
            ),
            ([QUARTER, REST], [(RANGE, RANGE_BYTES); 2]),
        ] {
            let blobs = [(&ONE, 0), (&OTHER, 1)].map(|(cell, index): (&Cell, usize)| {
                let (physical, bytes) = places[index];
                with_data(cell, physical, bytes, colours[index])
            });
            let numbers = [
                machine.start_hostile(&ONE, &blobs[0])?,
                machine.start_hostile(&OTHER, &blobs[1])?,
            ];
            let name = if colours[0] == 0 {
                "all colours"
            } else {
                "a quarter of the colours"
            };
            for (by, neighbour) in [
                ("nobody", None),
                ("another cell", Some((OTHER.cpu(0), other, PRIVATE))),
                ("the root", Some((root(3), 3, ROOT_DATA))),
            ] {
                run += 1;
                let [accesses, misses, lost] = measure(machine, &counts, neighbour, run)?;
                ensure(accesses % (alone * ROUNDS) == 0 && accesses > 0, || {
                    format!("{accesses} accesses: the model does not see physical addresses")
                })?;
                rows.push((name, by, accesses, misses, lost));
            }
            for (number, cell) in numbers.into_iter().zip([&ONE, &OTHER]) {
                machine.manage(Hypercall::CellDestroy, number)?;
                machine.turn_on(cell.cpus[0])?;
            }
        }
        let mut text = table.borrow_mut();
        for (memory, by, accesses, misses, lost) in &rows {
            let _ = writeln!(text, "| {memory} | {by} | {accesses} | {misses} | {lost} |");
        }
        let [plain_alone, plain, plain_root, own_alone, own, own_root] = rows[..] else {
            return Err(format!("{rows:?}"));
        };
        let check = |holds: bool, what: &str| ensure(holds, || format!("{what}:\n{text}"));
        check(
            plain_alone.3 == alone && own_alone.3 == alone,
            "misses beyond the first accesses",
        )?;
        check(plain.4 > 0, "without colours a neighbour evicts lines")?;
        check(
            own.4 == 0 && own.3 == alone,
            "with colours a cell evicts lines of another",
        )?;
        // The root's memory has all colours.
        check(
            plain_root.4 > 0 && own_root.4 > 0,
            "the root evicts lines with and without",
        )
    });
    println_table(&table.borrow());
}

/// Prints the table of docs/hypervisor.md, for `make bench-hypervisor`.
#[expect(clippy::print_stdout, reason = "a result for people")]
fn println_table(rows: &str) {
    println!("\n| memory of the cell | beside | accesses | misses | lines lost to the neighbour |");
    println!("|---|---|--:|--:|--:|\n{rows}");
}
