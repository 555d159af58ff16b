//! Brings the machine up step by step, and starts the personality.

mod entry;
mod processor;
mod secondary;

use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::slice;

use memwright::{Memory, Policy, PolicyError};
use memwright_kernel_logic::acpi::{self, ApicIds};
use memwright_kernel_logic::nodes::NodeMap;
use memwright_linux::account::refuse;
use memwright_linux_vfs::cpio::CpioArchive;
use memwright_linux_vfs::manifest::Manifest;
use memwright_table::OutOfMemory;
use memwright_table::addr::{Frame, FrameRange};
use memwright_table::frame::{Frames, Region};

use crate::boot::memory_map::MemoryMap;
use crate::boot::pvh::{PhysicalRange, StartInfo};
use crate::machine::{self, HARDWARE};
use crate::memory::frames::{self, M};
use crate::memory::paging::{self, DIRECT_BASE};
use crate::memory::ranges;
use crate::trap::idt;
use crate::{
    apic, arch, clock, context, control, disk, heap, input, log, percpu, selftest, smp, window,
};

const PAGE: u64 = 4096;
/// Memory below 1 MiB is not used: it contains firmware tables and the page in which other CPUs start.
const LOW_MEMORY: PhysicalRange = PhysicalRange {
    start: 0,
    end: 1 << 20,
};
/// End of usable memory, 16 TiB: frame numbers have 32 bits.
const HIGHEST: u64 = 1 << 44;

/// The number by which the total number of frames is divided to get the number of reserved frames. They are reserved
/// for page tables and the kernel's heap, which can still allocate them when programs have allocated all other frames.
const RESERVE_SHARE: u64 = 64;
/// The minimum and maximum number of reserved frames, which are 1 MiB and 16 MiB.
const LEAST_RESERVE: u64 = 256;
const MOST_RESERVE: u64 = 4096;

/// The entry point of Rust code on the boot processor. It runs on the boot stack and with the boot tables.
#[unsafe(no_mangle)]
extern "C" fn kernel_main(start_info: u64) -> ! {
    // SAFETY: this code runs once, on the boot processor, with interrupts disabled.
    unsafe { percpu::setup_boot_cpu() };
    context::fill_boot_stack();
    idt::fill();
    // SAFETY: the table was just filled; GS, the task state and the stacks were set up above.
    unsafe { idt::load() };
    // SAFETY: the table was just loaded.
    unsafe { arch::show_descriptor_table() };
    let (free, archive, nodes) = take_over_memory(start_info);
    processor::setup();
    clock::start();
    heap::start();
    let frames = start_frames(&free, &nodes);
    apic::start();
    clock::calibrate();
    apic::start_first_cpu();
    control::start();
    input::start();
    disk::start();
    let archive = CpioArchive::new(archive);
    if let Some(wanted) = selftest::wanted(archive) {
        selftest::run(wanted);
    }
    let manifest = Manifest::parse(archive);
    let memory = start_memory(frames, &manifest);
    fill_pool(&memory, manifest.huge_pages);
    // The guest's clock starts here, because the duration of the boot depends on the size of memory and not on the
    // program.
    clock::start();
    memwright_linux::boot::start(&HARDWARE, memory, manifest, archive)
}

/// Reads the start info and replaces the boot tables. Returns the free memory, the archive and the NUMA nodes.
fn take_over_memory(start_info: u64) -> (MemoryMap, &'static [u8], NodeMap) {
    // SAFETY: the boot tables are active, and the entry code passes the value that the monitor left in EBX.
    let Some(info) = (unsafe { StartInfo::read(start_info) }) else {
        panic!("not started by the PVH protocol (start info at {start_info:#x})");
    };
    let mut usable = MemoryMap::new();
    for range in info.memory() {
        usable.add(PhysicalRange {
            end: range.end.min(HIGHEST),
            ..range
        });
    }
    let archive = info.archive();
    let mut free = usable;
    free.remove(LOW_MEMORY);
    free.remove(paging::image_memory());
    if let Some(archive) = archive {
        free.remove(archive);
    }
    find_cpus(&usable, info.root_pointer);
    let nodes = NodeMap::read(&IdentityMapped, info.root_pointer);
    let Some(window) = window::find() else {
        panic!("the machine has no window to the command");
    };
    // SAFETY: called once, under the boot tables; `free` contains no memory that is in use.
    if unsafe { paging::build(&usable, &mut free, window) }.is_none() {
        panic!("no memory for the kernel's page tables");
    }
    let archive = archive.map_or(&[][..], |range| {
        let length = (range.end - range.start) as usize;
        // SAFETY: the monitor loaded the archive there. Its pages were removed from free memory, stay in the direct
        // map, and are never written.
        unsafe { slice::from_raw_parts((DIRECT_BASE + range.start) as *const u8, length) }
    });
    (free, archive, nodes)
}

/// Physical memory as the boot tables map it.
struct IdentityMapped;

impl acpi::Memory for IdentityMapped {
    fn bytes(&self, address: u64, length: usize) -> Option<&[u8]> {
        const MAPPED: u64 = 1 << 32;
        let end = address.checked_add(length as u64)?;
        // SAFETY: the boot tables identity-map everything below 4 GiB, and the firmware's tables are never written.
        // Physical addresses without memory read as ones.
        (address != 0 && end <= MAPPED)
            .then(|| unsafe { slice::from_raw_parts(address as *const u8, length) })
    }
}

/// Finds the CPUs. The boot tables must be active. Without ACPI tables, only the calling CPU is used.
fn find_cpus(usable: &MemoryMap, root_pointer: u64) {
    let own = arch::own_apic_id();
    let Ok(ids) = acpi::processors(&IdentityMapped, root_pointer) else {
        percpu::set_present(&ApicIds::single(own));
        return;
    };
    let ids = ids.with_first(own);
    assert!(
        ids.left_out == 0,
        "{} CPUs more than the kernel can use",
        ids.left_out
    );
    let trampoline = smp::TRAMPOLINE..smp::TRAMPOLINE + PAGE;
    let usable = usable
        .iter()
        .any(|range| range.start <= trampoline.start && trampoline.end <= range.end);
    assert!(
        usable || ids.as_slice().len() == 1,
        "no memory at {:#x} to start the other CPUs in",
        trampoline.start
    );
    percpu::set_present(&ids);
}

/// Passes the free memory to the frame allocator.
fn start_frames(free: &MemoryMap, nodes: &NodeMap) -> Arc<Frames<M>> {
    let mut regions = Vec::new();
    for range in free.iter() {
        let mut next = range.start;
        while next < range.end {
            let (node, end) = nodes.memory_at(next);
            let end = (end & !(PAGE - 1)).clamp(next + PAGE, range.end);
            let start = Frame::new((next / PAGE) as u32);
            let count = ((end - next) / PAGE) as u32;
            let range = FrameRange { start, count };
            #[expect(clippy::disallowed_methods, reason = "before any program runs")]
            regions.push(Region { range, node });
            next = end;
        }
    }
    ranges::set(free);
    match Frames::new(machine::handle(), &regions) {
        Ok(mut frames) => {
            if nodes.nodes() > 1 && frames.topology().nodes() == nodes.nodes() {
                let cpus = percpu::count();
                let placed = frames.set_topology(nodes.topology(cpus, percpu::apic_id));
                placed.expect("a topology of the nodes of the regions");
            }
            let frames = Arc::new(frames);
            frames::set(&frames);
            frames.low_water((frames.total() / RESERVE_SHARE).clamp(LEAST_RESERVE, MOST_RESERVE));
            log!("{} KiB of memory", frames.total() * 4);
            frames
        }
        Err(error) => panic!("the frame allocator refused the memory map: {error}"),
    }
}

/// Reserves `pages` huge pages for the hugetlb pool. Powers the machine off if the run requests more than are
/// available.
fn fill_pool(memory: &Memory<M>, pages: u64) {
    memory.frames().resize_pool(pages);
    let total = memory.frames().pool().total;
    if total < pages {
        #[expect(clippy::disallowed_macros, reason = "before any program runs")]
        let text = format!("memory for {total} of {pages} huge pages");
        refuse(&HARDWARE, &text);
    }
}

/// Creates the memory manager with the policies of the run. Skips policies that the memory manager does not have,
/// because they can belong to another part of the system. The command has already refused policies that no part
/// supports.
fn start_memory(frames: Arc<Frames<M>>, manifest: &Manifest) -> Arc<Memory<M>> {
    let policy = Policy::default();
    for (key, value) in &manifest.policies {
        if let Err(PolicyError::UnknownValue { key, .. }) = policy.set(key, value) {
            panic!("the policy {key} has no value {value}");
        }
    }
    match Memory::new(frames, policy) {
        Ok(memory) => {
            for &(order, mode) in &manifest.sizes {
                memory.huge().sizes.set_mode(order, mode);
            }
            Arc::new(memory)
        }
        Err(OutOfMemory) => panic!("no memory for the memory manager"),
    }
}
