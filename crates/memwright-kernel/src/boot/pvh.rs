//! The start info of the PVH boot protocol (Xen, `xen/include/public/arch-x86/hvm/start_info.h`).

use core::slice;

/// `XEN_HVM_START_MAGIC_VALUE`: "xEn3" with the highest bit of the E set.
const MAGIC: u32 = 0x336e_c578;

/// Memory map type of usable memory (`XEN_HVM_MEMMAP_TYPE_RAM`).
const MEMORY_MAP_RAM: u32 = 1;

/// A half-open range of physical memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhysicalRange {
    /// The first byte.
    pub start: u64,
    /// The address after the last byte.
    pub end: u64,
}

#[repr(C)]
struct RawStartInfo {
    magic: u32,
    version: u32,
    flags: u32,
    module_count: u32,
    modules: u64,
    command_line: u64,
    rsdp: u64,
    memory_map: u64,
    memory_map_entries: u32,
    reserved: u32,
}

#[repr(C)]
struct RawModule {
    address: u64,
    size: u64,
    command_line: u64,
    reserved: u64,
}

#[repr(C)]
struct RawMemoryMapEntry {
    address: u64,
    size: u64,
    kind: u32,
    reserved: u32,
}

/// The start info, which is read through the identity mapping of the boot tables.
pub struct StartInfo {
    memory_map: &'static [RawMemoryMapEntry],
    modules: &'static [RawModule],
    /// Physical address of ACPI's root pointer; 0 if the monitor does not provide one.
    pub root_pointer: u64,
}

impl StartInfo {
    /// Reads the start info at the physical address `address`. Returns `None` if the magic or the version does not
    /// match.
    ///
    /// # Safety
    /// The boot tables, which identity-map physical memory below 4 GiB, are active, and `address` is the one that the
    /// monitor passed in EBX. The result must not be used after other tables are loaded.
    pub unsafe fn read(address: u64) -> Option<Self> {
        // SAFETY: the caller guarantees the address; the structure consists of integers.
        let raw = unsafe { &*(address as *const RawStartInfo) };
        // The memory map exists since version 1.
        if raw.magic != MAGIC || raw.version < 1 {
            return None;
        }
        // SAFETY: the protocol guarantees that both arrays have the stated number of entries. If the module address is
        // null, the count is 0, and `array` returns an empty slice.
        unsafe {
            Some(Self {
                memory_map: array(raw.memory_map, raw.memory_map_entries),
                modules: array(raw.modules, raw.module_count),
                root_pointer: raw.rsdp,
            })
        }
    }

    /// Iterates over the ranges of usable memory, in the monitor's order.
    pub fn memory(&self) -> impl Iterator<Item = PhysicalRange> + '_ {
        self.memory_map
            .iter()
            .filter(|entry| entry.kind == MEMORY_MAP_RAM)
            .map(|entry| PhysicalRange {
                start: entry.address,
                end: entry.address.saturating_add(entry.size),
            })
    }

    /// Returns the first module, which is the initial archive.
    pub fn archive(&self) -> Option<PhysicalRange> {
        let module = self.modules.first()?;
        Some(PhysicalRange {
            start: module.address,
            end: module.address.checked_add(module.size)?,
        })
    }
}

/// Returns the array of `count` elements at `address` as a slice. If `address` or `count` is 0, the slice is empty.
///
/// # Safety
/// `address` is 0, or it is the physical address, below 4 GiB, of `count` initialised values of `T`.
unsafe fn array<T>(address: u64, count: u32) -> &'static [T] {
    if address == 0 || count == 0 {
        return &[];
    }
    // SAFETY: guaranteed by the caller.
    unsafe { slice::from_raw_parts(address as *const T, count as usize) }
}
