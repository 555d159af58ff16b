//! A `MemorySet` of `memory_set` whose areas Memwright maps, and two simulated CPUs that run a program in them.

use std::sync::Arc;

use memory_addr::VirtAddr;
use memory_set::{MappingError, MemoryArea, MemorySet};
use memwright::object::{ObjectIdentity, Shmem};
use memwright::{FaultError, Limits, MapError, ProtectError, UnmapError};
use memwright_adapters::Unsupported;
use memwright_adapters::set::{Backend, Refusal, Space};
use memwright_sim::programs::{Host, Process, boot};
use memwright_sim::{MachineOptions, MemoryType, SimulatedMachine};
use memwright_table::{CpuId, PAGE_SIZE, VirtAddr as TableAddr};
use page_table_multiarch::MappingFlags as Flags;

const FIRST: CpuId = CpuId::new(0);
const SECOND: CpuId = CpuId::new(1);
const START: usize = 0x40_0000;
const READ: Flags = Flags::READ.union(Flags::USER);
const READ_WRITE: Flags = READ.union(Flags::WRITE);

type Set = MemorySet<Backend<SimulatedMachine>>;

/// A kernel with a program, whose areas are in a `MemorySet`.
struct Kernel {
    host: Arc<Host>,
    process: Process,
    set: Set,
    space: Space<SimulatedMachine>,
}

impl Kernel {
    fn new() -> Self {
        let host = boot(MachineOptions {
            device: 4,
            ..MachineOptions::default()
        });
        let process = Process::new(&host);
        let space = Space::new(process.space().clone());
        Self {
            host,
            process,
            set: MemorySet::new(),
            space,
        }
    }

    /// Performs a system call on the first CPU.
    fn call<T>(&mut self, call: impl FnOnce(&mut Set, &mut Space<SimulatedMachine>) -> T) -> T {
        let _running = self.host.enter(FIRST, self.process.space());
        call(&mut self.set, &mut self.space)
    }

    fn map(
        &mut self,
        start: usize,
        pages: usize,
        flags: Flags,
        backend: Backend<SimulatedMachine>,
    ) -> Result<(), MappingError> {
        let area = MemoryArea::new(at(start), pages * PAGE_SIZE, flags, backend);
        self.call(|set, space| set.map(area, space, false))
    }

    fn protect(&mut self, page: usize, pages: usize, flags: Flags) {
        let (start, size) = (at(START + page * PAGE_SIZE), pages * PAGE_SIZE);
        let changed = self.call(|set, space| set.protect(start, size, |_| Some(flags), space));
        assert_eq!(changed, Ok(()));
    }

    fn unmap(&mut self, page: usize, pages: usize) {
        let (start, size) = (at(START + page * PAGE_SIZE), pages * PAGE_SIZE);
        let unmapped = self.call(|set, space| set.unmap(start, size, space));
        assert_eq!(unmapped, Ok(()));
    }

    /// Accesses a byte as a program does: faults are handled, and the access is repeated.
    fn access<T>(
        &self,
        cpu: CpuId,
        kind: Flags,
        mut access: impl FnMut() -> Result<T, memwright_sim::PageFault>,
    ) -> Result<T, FaultError> {
        let _running = self.host.enter(cpu, self.process.space());
        for _ in 0..8 {
            match access() {
                Ok(value) => return Ok(value),
                Err(fault) => {
                    let address = at(fault.address.as_u64() as usize);
                    self.space.handle_page_fault(address, kind)?;
                }
            }
        }
        panic!("an access faults again and again");
    }

    fn load(&self, cpu: CpuId, address: usize) -> Result<u8, FaultError> {
        let mut byte = [0];
        let cpu_of = self.host.machine().on(cpu);
        self.access(cpu, Flags::READ, || {
            cpu_of.read(TableAddr::new(address as u64), &mut byte)
        })?;
        Ok(byte[0])
    }

    fn store(&self, cpu: CpuId, address: usize, value: u8) -> Result<(), FaultError> {
        let cpu_of = self.host.machine().on(cpu);
        self.access(cpu, Flags::WRITE, || {
            cpu_of.write(TableAddr::new(address as u64), &[value])
        })
    }

    /// Returns the first page, the number of pages, and the flags of each area of the set.
    fn areas(&self) -> Vec<(usize, usize, Flags)> {
        let area = |area: &MemoryArea<Backend<SimulatedMachine>>| {
            let first = (area.start().as_usize() - START) / PAGE_SIZE;
            (first, area.size() / PAGE_SIZE, area.flags())
        };
        self.set.iter().map(area).collect()
    }
}

fn at(address: usize) -> VirtAddr {
    VirtAddr::from_usize(address)
}

fn alloc() -> Backend<SimulatedMachine> {
    Backend::Alloc { populate: false }
}

#[test]
fn a_set_is_mapped_protected_unmapped_and_cleared() {
    let mut kernel = Kernel::new();
    kernel.map(START, 8, READ_WRITE, alloc()).unwrap();
    for page in 0..8 {
        let address = START + page * PAGE_SIZE;
        kernel.store(FIRST, address, page as u8).unwrap();
        assert_eq!(kernel.load(SECOND, address), Ok(page as u8));
    }

    kernel.protect(2, 4, READ);
    assert_eq!(
        kernel.areas(),
        [(0, 2, READ_WRITE), (2, 4, READ), (6, 2, READ_WRITE)]
    );
    for page in 0..8 {
        let address = START + page * PAGE_SIZE;
        let expected = if (2..6).contains(&page) {
            Err(FaultError::Denied)
        } else {
            Ok(())
        };
        for cpu in [FIRST, SECOND] {
            assert_eq!(kernel.store(cpu, address, page as u8), expected);
            assert_eq!(kernel.load(cpu, address), Ok(page as u8));
        }
    }

    kernel.unmap(1, 3);
    assert_eq!(
        kernel.areas(),
        [(0, 1, READ_WRITE), (4, 2, READ), (6, 2, READ_WRITE)]
    );
    for page in 0..8 {
        let address = START + page * PAGE_SIZE;
        let expected = if (1..4).contains(&page) {
            Err(FaultError::NoArea)
        } else {
            Ok(page as u8)
        };
        for cpu in [FIRST, SECOND] {
            assert_eq!(kernel.load(cpu, address), expected);
        }
    }

    // The rights come back without the contents being lost.
    kernel.protect(4, 2, READ_WRITE);
    assert_eq!(kernel.load(SECOND, START + 5 * PAGE_SIZE), Ok(5));
    kernel.store(SECOND, START + 5 * PAGE_SIZE, 50).unwrap();
    assert_eq!(kernel.load(FIRST, START + 5 * PAGE_SIZE), Ok(50));

    kernel.call(|set, space| set.clear(space)).unwrap();
    assert!(kernel.set.is_empty());
    for page in 0..8 {
        let address = START + page * PAGE_SIZE;
        assert_eq!(kernel.load(SECOND, address), Err(FaultError::NoArea));
    }
    let used = kernel
        .host
        .frames()
        .used_by(memwright_table::FrameKind::Anonymous);
    assert_eq!(used, 0);
    assert_eq!(kernel.space.take_refused(), None);
    assert_eq!(
        kernel.host.machine().take_violations(),
        Vec::<String>::new()
    );
}

#[test]
fn a_protection_change_is_flushed_on_the_other_cpu() {
    let mut kernel = Kernel::new();
    kernel.map(START, 1, READ_WRITE, alloc()).unwrap();
    kernel.store(SECOND, START, 1).unwrap();
    let taken = |kernel: &Kernel| kernel.host.machine().cost(SECOND).interrupts_taken;
    let before = taken(&kernel);
    kernel.protect(0, 1, READ);
    assert_eq!(taken(&kernel), before + 1);
    assert_eq!(kernel.store(SECOND, START, 2), Err(FaultError::Denied));
    assert_eq!(kernel.load(FIRST, START), Ok(1));
}

#[test]
fn an_area_replaces_others_where_it_may() {
    let mut kernel = Kernel::new();
    kernel.map(START, 4, READ_WRITE, alloc()).unwrap();
    kernel.store(FIRST, START + PAGE_SIZE, 1).unwrap();
    let area = MemoryArea::new(at(START + PAGE_SIZE), PAGE_SIZE, READ, alloc());
    let mapped = kernel.call(|set, space| set.map(area, space, true));
    assert_eq!(mapped, Ok(()));
    assert_eq!(
        kernel.areas(),
        [(0, 1, READ_WRITE), (1, 1, READ), (2, 2, READ_WRITE)]
    );
    assert_eq!(kernel.load(SECOND, START + PAGE_SIZE), Ok(0));
    assert_eq!(
        kernel.store(SECOND, START + PAGE_SIZE, 1),
        Err(FaultError::Denied)
    );
}

#[test]
fn pages_can_be_populated_at_once() {
    let mut kernel = Kernel::new();
    let populated = Backend::Alloc { populate: true };
    kernel.map(START, 3, READ_WRITE, populated).unwrap();
    let used = kernel
        .host
        .frames()
        .used_by(memwright_table::FrameKind::Anonymous);
    assert_eq!(used, 3);
    // The program takes no fault.
    let faults = |kernel: &Kernel| kernel.host.machine().total_cost().faults;
    let before = faults(&kernel);
    kernel.store(FIRST, START + 2 * PAGE_SIZE, 1).unwrap();
    assert_eq!(faults(&kernel), before);
}

#[test]
fn areas_map_objects_and_device_memory() {
    let mut kernel = Kernel::new();
    let memory = Arc::clone(kernel.host.memory());
    let object =
        Shmem::new(memory, 4 * PAGE_SIZE as u64, ObjectIdentity::default()).expect("a new object");
    let object = Arc::new(object);
    let backend = |start: usize, shared| Backend::Object {
        object: object.clone(),
        origin: at(start),
        shared,
    };
    kernel
        .map(START, 4, READ_WRITE, backend(START, true))
        .unwrap();
    kernel.store(FIRST, START + 3 * PAGE_SIZE, 3).unwrap();
    // A shared mapping of the last page alone, and a private one.
    let view = START + 16 * PAGE_SIZE;
    let origin = view - 3 * PAGE_SIZE;
    kernel.map(view, 1, READ, backend(origin, true)).unwrap();
    let private = START + 32 * PAGE_SIZE;
    let origin = private - 3 * PAGE_SIZE;
    kernel
        .map(private, 1, READ_WRITE, backend(origin, false))
        .unwrap();
    assert_eq!(kernel.load(SECOND, view), Ok(3));
    kernel.store(SECOND, private, 30).unwrap();
    assert_eq!(kernel.load(SECOND, view), Ok(3));
    // The rest of a split area still maps its part of the object.
    kernel.unmap(0, 2);
    kernel.protect(3, 1, READ);
    assert_eq!(kernel.load(SECOND, START + 3 * PAGE_SIZE), Ok(3));

    let device = kernel.host.machine().memory().device().start.address();
    let start = START + 64 * PAGE_SIZE;
    let linear = Backend::Linear {
        pa_va_offset: start.wrapping_sub(device.as_u64() as usize),
    };
    kernel
        .map(start, 2, READ_WRITE | Flags::DEVICE, linear.clone())
        .unwrap();
    kernel.store(SECOND, start + PAGE_SIZE, 5).unwrap();
    let second = kernel.host.machine().on(SECOND);
    let kind = second.memory_type(TableAddr::new(start as u64));
    assert_eq!(kind, Some(MemoryType::Uncached));
    // Memory of the allocator is no device memory.
    let elsewhere = start + 128 * PAGE_SIZE;
    let refused = kernel.map(elsewhere + (64 << 20), 1, READ, linear);
    assert_eq!(refused, Err(MappingError::BadState));
    assert!(matches!(
        kernel.space.take_refused(),
        Some(Refusal::Map(MapError::NotDevice(_)))
    ));
}

#[test]
fn the_reason_of_a_refusal_is_kept() {
    let mut kernel = Kernel::new();
    let bad = Err(MappingError::BadState);
    kernel.map(START, 2, READ_WRITE, alloc()).unwrap();
    // The set itself finds an overlap.
    assert_eq!(
        kernel.map(START, 1, READ, alloc()),
        Err(MappingError::AlreadyExists)
    );
    assert_eq!(kernel.space.take_refused(), None);

    let below = 0x1000;
    let kernel_half = 0xffff_8000_0000_0000;
    for (start, flags, expected) in [
        (
            START + 0x8000,
            Flags::READ,
            Refusal::Flags(Unsupported::NotUser),
        ),
        (
            START + 0x8000,
            READ | Flags::UNCACHED,
            Refusal::Flags(Unsupported::Flags(0x29)),
        ),
        (START + 0x8001, READ, Refusal::Misaligned),
        (below, READ, Refusal::Map(MapError::TooLow)),
        (kernel_half, READ, Refusal::Map(MapError::OutOfRange)),
    ] {
        assert_eq!(kernel.map(start, 1, flags, alloc()), bad);
        assert_eq!(kernel.space.take_refused(), Some(expected));
    }
    // `MemorySet` does not know this area of Memwright, so mapping fails and does not replace it.
    let other = TableAddr::new(START as u64 + 0x8000);
    let request = memwright::MapRequest::anonymous(4096, memwright::Rights::READ)
        .at(memwright::Placement::Fixed(other));
    kernel
        .process
        .on(FIRST, |space| space.map(&request))
        .unwrap();
    assert_eq!(kernel.map(START + 0x8000, 1, READ, alloc()), bad);
    assert_eq!(
        kernel.space.take_refused(),
        Some(Refusal::Map(MapError::Taken(other)))
    );

    // A set reports no error if its backend fails to protect.
    kernel
        .process
        .on(FIRST, |space| {
            space.unmap(TableAddr::new(START as u64 + 4096), 4096)
        })
        .unwrap();
    kernel.protect(0, 2, READ);
    assert_eq!(
        kernel.space.take_refused(),
        Some(Refusal::Protect(ProtectError::Hole(TableAddr::new(
            START as u64 + 4096
        ))))
    );
}

#[test]
fn limits_and_the_end_of_memory_are_reported() {
    let mut kernel = Kernel::new();
    kernel.map(START, 3, READ_WRITE, alloc()).unwrap();
    let limits = Limits {
        areas: 1,
        ..kernel.process.space().limits()
    };
    kernel.process.space().set_limits(limits);
    let middle = at(START + PAGE_SIZE);
    let unmapped = kernel.call(|set, space| set.unmap(middle, PAGE_SIZE, space));
    assert_eq!(unmapped, Err(MappingError::BadState));
    assert_eq!(
        kernel.space.take_refused(),
        Some(Refusal::Unmap(UnmapError::OverLimit(
            memwright::Limit::Areas
        )))
    );

    // A set that fails to unmap the middle of an area loses the part above it, which stays mapped.
    assert_eq!(kernel.areas(), [(0, 2, READ_WRITE)]);
    assert_eq!(kernel.load(SECOND, START + 2 * PAGE_SIZE), Ok(0));

    let mut kernel = Kernel::new();
    kernel.map(START, 1, READ_WRITE, alloc()).unwrap();
    let frames = kernel.host.frames().clone();
    let next = || {
        frames
            .allocate(0, memwright_table::FrameKind::Anonymous)
            .ok()
    };
    let all: Vec<_> = std::iter::from_fn(next).collect();
    assert_eq!(kernel.store(FIRST, START, 1), Err(FaultError::OutOfMemory));
    drop(all);
    assert_eq!(kernel.store(FIRST, START, 1), Ok(()));
}
