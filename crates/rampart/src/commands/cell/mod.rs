// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rampart cell`: static partitions of an arm64 machine, under a hypervisor that Linux launches and
//! leaves again.

mod act;
mod request;
mod show;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use rampart_model::{ByteSize, CpuSet, ExitCode, Nanos};

use crate::failure::Failure;

const CELL_EXAMPLES: &str = "\
Examples:
  rampart cell describe               show the hardware, and what prevents cells
  rampart cell enable                 launch the hypervisor under Linux
  rampart cell create press --cpus 3 --memory 16MiB --image press.bin
  rampart cell start press
  rampart cell list --verbose         show states, stop reasons, and registers
  rampart cell stats press            count exits to the hypervisor, by reason
  rampart cell destroy press          wipe the cell, return its CPUs and memory
  rampart cell disable                remove the hypervisor

Cells need an arm64 machine with a GICv3, a kernel booted at EL2 without VHE,
and memory that is kept from Linux; `enable` reports what is missing, with its
fix. The driver (/dev/rampart) keeps the state, so cells outlive processes.

Exit codes: 0 done; 2 wrong arguments, or no such cell; 4 a precondition is
missing and nothing was changed; 5 only a part was done.";

/// Split this arm64 machine: cells under a partitioning hypervisor
#[derive(Debug, Args)]
#[command(after_help = CELL_EXAMPLES)]
pub(crate) struct CellArguments {
    #[command(subcommand)]
    command: CellCommand,
}

#[derive(Debug, Subcommand)]
enum CellCommand {
    /// Describe a machine from its device tree: CPUs, memory, interrupts, devices
    Describe(Describe),
    /// Launch the hypervisor under the running Linux
    Enable(Enable),
    /// Remove the hypervisor
    Disable(Disable),
    /// Create a cell from CPUs and memory of Linux
    Create(Box<Create>),
    /// Load a file into the memory of a cell that does not run
    Load(Load),
    /// Start cells at their entries
    Start(Names),
    /// Stop cells and keep their memory
    Stop(Names),
    /// Destroy cells: wipe their memory and return their resources to Linux
    Destroy(Names),
    /// List cells with their states and stop reasons
    List(List),
    /// Print what a cell wrote to its console
    Console(ConsoleArguments),
    /// Copy a shared region to the standard output
    Read(Read),
    /// Write a file into a shared region that the root may write
    Write(Write),
    /// Count the exits of cells to the hypervisor, by reason
    Stats(Stats),
}

const DESCRIBE_EXAMPLES: &str = "\
Examples:
  rampart cell describe                    this machine; root sees /proc/iomem
  rampart cell describe --json             as a document (cell-description)
  rampart cell describe --tree board.dtb   another machine

Findings name ranges that overlap, pages and interrupts that several devices
share, and what prevents cells. Exit code 4 if there is no device tree.";

#[derive(Debug, Args)]
#[command(after_help = DESCRIBE_EXAMPLES)]
struct Describe {
    /// Print the description as JSON
    #[arg(long)]
    json: bool,

    /// Device tree of another machine: a DTB, or a copy of /proc/device-tree
    #[arg(long, value_name = "DIR|FILE.dtb")]
    tree: Option<PathBuf>,

    /// That machine's /proc/iomem, copied as root
    #[arg(long, value_name = "FILE", requires = "tree")]
    iomem: Option<PathBuf>,

    /// Also show disabled devices
    #[arg(long)]
    all: bool,
}

const ENABLE_EXAMPLES: &str = "\
Examples:
  rampart cell enable
  rampart cell enable --module rampart.ko --image rampart.bin

Memory is kept from Linux with mem= on the kernel command line, or by a node in
/reserved-memory whose name begins with `rampart`, with `no-map`. If the
hypervisor is enabled already, the command changes nothing. `rampart cell
disable` unloads the driver if this command loaded it.";

#[derive(Debug, Args)]
#[command(after_help = ENABLE_EXAMPLES)]
struct Enable {
    /// The driver's module [default: the installed one, modprobe rampart]
    #[arg(long, value_name = "FILE")]
    module: Option<PathBuf>,

    /// The hypervisor's image [default: /lib/firmware/rampart.bin]
    #[arg(long, value_name = "FILE")]
    image: Option<PathBuf>,

    /// Memory of the hypervisor itself
    #[arg(long, value_name = "SIZE", default_value = "8MiB")]
    memory: ByteSize,

    /// Print what was done as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Disable {
    /// Destroy all cells first
    #[arg(long)]
    destroy_cells: bool,

    /// Print what was done as JSON
    #[arg(long)]
    json: bool,
}

const CREATE_EXAMPLES: &str = "\
Examples:
  rampart cell create press --cpus 3 --memory 16MiB --image press.bin
  rampart cell create press --cpu-count 2 --watchdog 100ms --device /pl061@9030000
  rampart cell create press --register 0x9030400:4:0x1:0x1      one bit of a register, not the device
  rampart cell create press --shared records=1MiB --shared orders=4KiB:root
  rampart cell create view --shared-of press:records            reads what the cell press writes
  rampart cell create press --dry-run --json                    what it would get

A program without an operating system is a plain binary that begins with its first instruction; it has
its memory at 0x40000000, and what it shares from 0x50000000 on. Where regions have names, it finds them
in a directory at 0x4ffff000 (rampart_ring::directory).";

#[derive(Debug, Args)]
#[command(after_help = CREATE_EXAMPLES)]
struct Create {
    /// Its name
    name: String,

    /// Its CPUs; the first one is started
    #[arg(long, value_name = "CPUS", conflicts_with = "cpu_count")]
    cpus: Option<CpuSet>,

    /// So many CPUs, the highest that are free; without both one
    #[arg(long, value_name = "NUMBER")]
    cpu_count: Option<u32>,

    /// Its own memory
    #[arg(long, value_name = "SIZE", default_value = "2MiB")]
    memory: ByteSize,

    /// The program, which is loaded at once
    #[arg(long, value_name = "FILE")]
    image: Option<PathBuf>,

    /// A device: the path of its node, the node's name, or its address
    #[arg(long, value_name = "DEVICE")]
    device: Vec<String>,

    /// Bits of a register: ADDRESS:BYTES:READABLE:WRITABLE, with `:acts` where a written 1 acts and
    /// a 0 does not
    #[arg(long, value_name = "REGISTER", value_parser = request::register)]
    register: Vec<request::Register>,

    /// A region that the cell writes and the root reads, or with `:root` the other way round, and its
    /// name; without it one of 64KiB
    #[arg(long, value_name = "[NAME=]SIZE[:root]", value_parser = request::shared)]
    shared: Vec<request::Shared>,

    /// A shared region of another cell, to be read, by its name or its number from 0; it has the same
    /// name here, unless another one is said
    #[arg(long, value_name = "[NAME=]CELL:NAME", value_parser = request::neighbour)]
    shared_of: Vec<request::Neighbour>,

    /// How many doorbells it has: interrupts by which others ring it
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    bells: u32,

    /// A cell whose doorbell it rings
    #[arg(long, value_name = "CELL")]
    rings: Vec<String>,

    /// It fails when it is silent for so long
    #[arg(long, value_name = "TIME")]
    watchdog: Option<Nanos>,

    /// x0 of its first CPU when it starts
    #[arg(long, value_name = "NUMBER", default_value = "0", value_parser = request::number)]
    argument: u64,

    /// Only say what it would get
    #[arg(long)]
    dry_run: bool,

    /// Print what was made as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Load {
    /// The cell
    name: String,

    /// What is loaded, byte by byte
    file: PathBuf,

    /// Where, as the cell sees it; without it at its entry
    #[arg(long, value_name = "ADDRESS", value_parser = request::number)]
    at: Option<u64>,
}

#[derive(Debug, Args)]
struct Names {
    /// The cells
    #[arg(required = true, value_name = "CELL")]
    names: Vec<String>,
}

#[derive(Debug, Args)]
struct List {
    /// Print them as JSON
    #[arg(long)]
    json: bool,

    /// Show what each has, and the registers of its latest failure
    #[arg(short, long)]
    verbose: bool,
}

#[derive(Debug, Args)]
struct ConsoleArguments {
    /// The cell
    name: String,

    /// Go on until Ctrl-C, or until the cell runs no more
    #[arg(short, long)]
    follow: bool,
}

const READ_EXAMPLES: &str = "\
Examples:
  rampart cell read press:records >records.bin
  rampart cell read press:0 --bytes 64B | od -t x8

`rampart cell list --verbose` shows the regions. The cell may write while this reads: each word of 64 bits
is whole, and what several words say together is for the reader to check.";

#[derive(Debug, Args)]
#[command(after_help = READ_EXAMPLES)]
struct Read {
    /// The cell, and its region by name or by number from 0
    #[arg(value_name = "CELL:NAME", value_parser = request::region)]
    region: (String, String),

    /// Only so much of it, from its start
    #[arg(long, value_name = "SIZE")]
    bytes: Option<ByteSize>,
}

const WRITE_EXAMPLES: &str = "\
Examples:
  rampart cell write press:orders orders.bin
  printf '\\1\\0\\0\\0\\0\\0\\0\\0' | rampart cell write press:orders --at 8

Only regions that the root writes (`--shared orders=4KiB:root`): each has one writer. Words of 64 bits are
written one after the other, each as a whole.";

#[derive(Debug, Args)]
#[command(after_help = WRITE_EXAMPLES)]
struct Write {
    /// The cell, and its region by name or by number from 0
    #[arg(value_name = "CELL:NAME", value_parser = request::region)]
    region: (String, String),

    /// What is written; without it the input
    file: Option<PathBuf>,

    /// Where in the region it begins, in bytes: a multiple of 8
    #[arg(long, value_name = "OFFSET", default_value = "0", value_parser = request::number)]
    at: u64,
}

#[derive(Debug, Args)]
struct Stats {
    /// The cells; without any, all
    names: Vec<String>,

    /// Print them as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &CellArguments) -> Result<ExitCode, Failure> {
    match &arguments.command {
        CellCommand::Describe(describe) => show::describe(describe),
        CellCommand::Enable(enable) => act::enable(enable),
        CellCommand::Disable(disable) => act::disable(disable),
        CellCommand::Create(create) => act::create(create),
        CellCommand::Load(load) => act::load(load),
        CellCommand::Start(names) => {
            act::each(names, "runs", |operator, name| operator.start(name))
        }
        CellCommand::Stop(names) => {
            act::each(names, "is stopped", |operator, name| operator.stop(name))
        }
        CellCommand::Destroy(names) => {
            act::each(names, "is gone", |operator, name| operator.destroy(name))
        }
        CellCommand::List(list) => show::list(list),
        CellCommand::Console(console) => show::console(console),
        CellCommand::Read(read) => show::read(read),
        CellCommand::Write(write) => act::write(write),
        CellCommand::Stats(stats) => show::stats(stats),
    }
}
