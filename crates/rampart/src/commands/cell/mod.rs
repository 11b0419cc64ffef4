// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rampart cell`: static partitions of an arm64 machine, under a hypervisor that Linux starts and
//! removes.

mod act;
mod request;
mod show;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use rampart_cells::network::NetworkRequest;
use rampart_model::{ByteSize, CpuList, ExitCode, Nanos};

use crate::failure::Failure;

const CELL_EXAMPLES: &str = "\
Cells need an arm64 machine with a GICv2 or GICv3, a kernel that was booted at
EL2 without VHE, and memory that is reserved from Linux. `enable` reports what
is missing and how to fix it. The driver (/dev/rampart) keeps the state of
cells; no process has to run.

Exit codes:
  0  done
  2  the arguments are invalid, or the cell does not exist
  4  something is missing, and nothing was changed

Examples:
  rampart cell describe          the parts of this machine
  rampart cell enable            start the hypervisor under Linux
  rampart cell create press --cpus 3 --memory 16MiB --image press.bin
  rampart cell start press
  rampart cell list --verbose    states, stop reasons, registers of failures
  rampart cell stats press       exits to the hypervisor by reason
  rampart cell destroy press     wipe it; Linux gets its CPUs and memory back
  rampart cell disable           remove the hypervisor";

/// Partition an arm64 machine into cells under a hypervisor
#[derive(Debug, Args)]
#[command(after_help = CELL_EXAMPLES)]
pub(crate) struct CellArguments {
    #[command(subcommand)]
    command: CellCommand,
}

#[derive(Debug, Subcommand)]
enum CellCommand {
    /// Show the CPUs, memory, interrupts and devices of a device tree
    Describe(Describe),
    /// Start the hypervisor under the running Linux
    Enable(Enable),
    /// Remove the hypervisor
    #[command(after_help = DISABLE_EXAMPLES)]
    Disable(Disable),
    /// Create a cell and take its CPUs and memory from Linux
    Create(Box<Create>),
    /// Write a file into the memory of a stopped cell
    #[command(after_help = LOAD_EXAMPLES)]
    Load(Load),
    /// Start cells at their entry points
    #[command(after_help = "Example:\n  rampart cell start press")]
    Start(Names),
    /// Stop cells and keep their memory
    #[command(after_help = "Example:\n  rampart cell stop press")]
    Stop(Names),
    /// Destroy cells, wipe their memory and return everything to Linux
    #[command(after_help = "Example:\n  rampart cell destroy press")]
    Destroy(Names),
    /// Keep a kernel with which the hypervisor starts the root again
    #[command(after_help = STANDBY_EXAMPLES)]
    Standby(Standby),
    /// List cells, their states and stop reasons
    #[command(after_help = "Example:\n  rampart cell list --verbose")]
    List(List),
    /// Print the console output of a cell
    #[command(after_help = "Example:\n  rampart cell console press --follow")]
    Console(ConsoleArguments),
    /// Copy a shared region to standard output
    Read(Read),
    /// Write into a shared region whose writer is the root
    Write(Write),
    /// Count the exits of cells to the hypervisor by reason
    #[command(after_help = "Example:\n  rampart cell stats press")]
    Stats(Stats),
}

const DESCRIBE_EXAMPLES: &str = "\
Findings name overlapping ranges, pages and interrupts that several devices
share, and obstacles to cells. Exit code 4 if there is no device tree.

Examples:
  rampart cell describe                    this machine (as root, for iomem)
  rampart cell describe --json             rampart schema cell-description
  rampart cell describe --tree board.dtb   another machine";

#[derive(Debug, Args)]
#[command(after_help = DESCRIBE_EXAMPLES)]
struct Describe {
    /// Print the description as JSON
    #[arg(long)]
    json: bool,

    /// Device tree of another machine: a flattened one, or a directory such as
    /// /proc/device-tree
    #[arg(long, value_name = "DIR|FILE.dtb")]
    tree: Option<PathBuf>,

    /// Copy of /proc/iomem of that machine, made as root
    #[arg(long, value_name = "FILE", requires = "tree")]
    iomem: Option<PathBuf>,

    /// Also show disabled devices
    #[arg(long)]
    all: bool,
}

const ENABLE_EXAMPLES: &str = "\
Reserve memory from Linux with mem= on the kernel command line, or with a node
in /reserved-memory whose name begins with `rampart` and which has `no-map`. If
the hypervisor is enabled already, nothing is done, except after it has started
the root again: the root's ends of networks with cells are created again.

Examples:
  rampart cell enable
  rampart cell enable --module rampart.ko --image rampart.bin";

#[derive(Debug, Args)]
#[command(after_help = ENABLE_EXAMPLES)]
struct Enable {
    /// Kernel module of the driver [default: the installed one]
    #[arg(long, value_name = "FILE")]
    module: Option<PathBuf>,

    /// Image of the hypervisor: rampart.bin for a GICv3, rampart-smmu.bin with
    /// an SMMUv3 of its own, rampart-gicv2.bin for a GICv2 [default: the
    /// installed one]
    #[arg(long, value_name = "FILE")]
    image: Option<PathBuf>,

    /// Memory of the hypervisor
    #[arg(long, value_name = "SIZE", default_value = "8MiB")]
    memory: ByteSize,

    /// Print the outcome as JSON
    #[arg(long)]
    json: bool,
}

const DISABLE_EXAMPLES: &str = "\
Examples:
  rampart cell disable
  rampart cell disable --destroy-cells";

#[derive(Debug, Args)]
struct Disable {
    /// First destroy every cell
    #[arg(long)]
    destroy_cells: bool,

    /// Print the outcome as JSON
    #[arg(long)]
    json: bool,
}

const CREATE_EXAMPLES: &str = "\
A program without an operating system is a plain binary that begins with its
first instruction. Its memory is at 0x40000000, its shared regions start at
0x50000000, and a directory of named regions is at 0x4ffff000
(rampart_ring::directory).

Examples:
  rampart cell create press --cpus 3 --memory 16MiB --image press.bin
  rampart cell create press --cpu-count 2 --watchdog 100ms \\
      --device /pl061@9030000
  rampart cell create press --register 0x9030400:4:0x1:0x1
  rampart cell create press --shared records=1MiB --shared orders=4KiB:root
  rampart cell create view --shared-of press:records
  rampart cell create press --network root --network view=1MiB
  rampart cell create press --dry-run --json";

#[derive(Debug, Args)]
#[command(after_help = CREATE_EXAMPLES, next_help_heading = "Resources")]
struct Create {
    /// Name of the cell
    #[arg(help_heading = clap::builder::Resettable::Reset)]
    name: String,

    /// CPUs; the first one is started
    #[arg(long, value_name = "CPUS", conflicts_with = "cpu_count")]
    cpus: Option<CpuList>,

    /// Number of CPUs, the highest free ones [default without --cpus: 1]
    #[arg(long, value_name = "NUMBER")]
    cpu_count: Option<u32>,

    /// Private memory
    #[arg(long, value_name = "SIZE", default_value = "2MiB")]
    memory: ByteSize,

    /// Share of the last-level cache, in whole colours: memory of these
    /// colours, which no other cell gets
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(1..=100))]
    cache_percent: Option<u32>,

    /// Device: path of its node, name of the node, or address; or a PCI
    /// function, such as 0000:00:04.0; repeatable
    #[arg(long, value_name = "DEVICE")]
    device: Vec<String>,

    /// Device with DMA that no SMMU confines: the cell can write all memory
    /// by it, and is trusted for this reason; repeatable
    #[arg(long, value_name = "DEVICE=REASON", value_parser = request::reason)]
    unconfined_dma: Vec<(String, String)>,

    /// Bits of a register: ADDRESS:BYTES:READABLE:WRITABLE, with `:acts` if a
    /// written 1 acts and a 0 does not; repeatable
    #[arg(long, value_name = "REGISTER", value_parser = request::register)]
    register: Vec<request::Register>,

    /// Program to load: a file, or the name of an installed one, such as
    /// rampart-cell-irq
    #[arg(long, value_name = "FILE", help_heading = "Program")]
    image: Option<PathBuf>,

    /// x0 of the first CPU at its start
    #[arg(
        long,
        value_name = "NUMBER",
        default_value = "0",
        value_parser = request::number,
        help_heading = "Program"
    )]
    argument: u64,

    /// Fail the cell if it is silent for this time
    #[arg(long, value_name = "TIME", help_heading = "Program")]
    watchdog: Option<Nanos>,

    /// Region that the cell writes and the root reads, or with `:root` the
    /// other way round; repeatable [default: one of 64KiB]
    #[arg(
        long,
        value_name = "[NAME=]SIZE[:root]",
        value_parser = request::shared,
        help_heading = "Communication"
    )]
    shared: Vec<request::Shared>,

    /// Region of another cell to read, by name or number from 0; repeatable
    /// [default name: that in the other cell]
    #[arg(
        long,
        value_name = "[NAME=]CELL:NAME",
        value_parser = request::other_region,
        help_heading = "Communication"
    )]
    shared_of: Vec<request::OtherRegion>,

    /// Number of doorbells: interrupts that other cells ring
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 0,
        help_heading = "Communication"
    )]
    bells: u32,

    /// Cell whose doorbell this one rings; repeatable
    #[arg(long, value_name = "CELL", help_heading = "Communication")]
    rings: Vec<String>,

    /// Network with the root or another cell, and the size of the frames on the
    /// way; repeatable [default size: 256KiB]
    #[arg(
        long,
        value_name = "PEER[=SIZE]",
        value_parser = request::network,
        help_heading = "Communication"
    )]
    network: Vec<NetworkRequest>,

    /// Only print the resources of the cell
    #[arg(long, help_heading = "Output")]
    dry_run: bool,

    /// Print the resources of the cell as JSON
    #[arg(long, help_heading = "Output")]
    json: bool,
}

const LOAD_EXAMPLES: &str = "\
Examples:
  rampart cell load press press.bin
  rampart cell load press table.bin --at 0x40100000";

#[derive(Debug, Args)]
struct Load {
    /// Cell
    name: String,

    /// File to load, or the name of an installed program
    file: PathBuf,

    /// Address in the cell [default: its entry point]
    #[arg(long, value_name = "ADDRESS", value_parser = request::number)]
    at: Option<u64>,
}

const STANDBY_EXAMPLES: &str = "\
If the root resets the machine or turns it off while cells exist, the hypervisor
starts this kernel instead, and the cells run on. Linux resets the machine after
a panic only with panic=SECONDS on the kernel command line. Each standby is used
once. `rampart cell list` shows it, `rampart cell destroy` removes it.

Example:
  rampart cell standby spare --kernel /boot/vmlinuz --initramfs /boot/initrd.img";

#[derive(Debug, Args)]
struct Standby {
    /// Name of the standby
    name: String,

    /// Kernel image to keep
    #[arg(long, value_name = "FILE")]
    kernel: PathBuf,

    /// Initramfs of that kernel
    #[arg(long, value_name = "FILE")]
    initramfs: PathBuf,

    /// All memory of that kernel
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    memory: ByteSize,

    /// Kernel parameters [default: those of this kernel, except those that limit
    /// its memory]
    #[arg(long, value_name = "PARAMETERS", allow_hyphen_values = true)]
    append: Option<String>,
}

#[derive(Debug, Args)]
struct Names {
    /// Cells
    #[arg(required = true, value_name = "CELL")]
    names: Vec<String>,
}

#[derive(Debug, Args)]
struct List {
    /// Print the list as JSON
    #[arg(long)]
    json: bool,

    /// Also show resources, and the registers of the latest failure
    #[arg(short, long)]
    verbose: bool,
}

#[derive(Debug, Args)]
struct ConsoleArguments {
    /// Cell
    name: String,

    /// Continue until Ctrl-C or until the cell stops
    #[arg(short, long)]
    follow: bool,
}

const READ_EXAMPLES: &str = "\
`rampart cell list --verbose` lists the regions. The cell may write meanwhile:
each word of 64 bits is consistent, several words may not be.

Examples:
  rampart cell read press:records > records.bin
  rampart cell read press:0 --bytes 64B | od -t x8";

#[derive(Debug, Args)]
#[command(after_help = READ_EXAMPLES)]
struct Read {
    /// Cell, and its region by name or by number from 0
    #[arg(value_name = "CELL:NAME", value_parser = request::region)]
    region: (String, String),

    /// Number of bytes to read [default: the whole region]
    #[arg(long, value_name = "SIZE")]
    bytes: Option<ByteSize>,
}

const WRITE_EXAMPLES: &str = "\
A region has one writer; this command writes those of the root, such as
`--shared orders=4KiB:root`. Words of 64 bits are written in order, each
atomically.

Examples:
  rampart cell write press:orders orders.bin
  printf '\\1\\0\\0\\0\\0\\0\\0\\0' | rampart cell write press:orders --at 8";

#[derive(Debug, Args)]
#[command(after_help = WRITE_EXAMPLES)]
struct Write {
    /// Cell, and its region by name or by number from 0
    #[arg(value_name = "CELL:NAME", value_parser = request::region)]
    region: (String, String),

    /// File to write [default: standard input]
    file: Option<PathBuf>,

    /// Offset in the region in bytes, a multiple of 8
    #[arg(long, value_name = "OFFSET", default_value = "0", value_parser = request::number)]
    at: u64,
}

#[derive(Debug, Args)]
struct Stats {
    /// Cells [default: all]
    names: Vec<String>,

    /// Print the figures as JSON
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
            act::each(names, "is running", |operator, name| operator.start(name))
        }
        CellCommand::Stop(names) => {
            act::each(names, "is stopped", |operator, name| operator.stop(name))
        }
        CellCommand::Destroy(names) => act::each(names, "is destroyed", |operator, name| {
            operator.destroy(name)
        }),
        CellCommand::Standby(standby) => act::standby(standby),
        CellCommand::List(list) => show::list(list),
        CellCommand::Console(console) => show::console(console),
        CellCommand::Read(read) => show::read(read),
        CellCommand::Write(write) => act::write(write),
        CellCommand::Stats(stats) => show::stats(stats),
    }
}
