//! Tests of what construction refuses: machines, regions, topologies and templates.

use std::ptr::NonNull;
use std::string::ToString;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::vec::Vec;

use super::machine::TestMachine;
use crate::{
    CpuSet, Frame, FrameKind, FrameRange, Frames, Invalidation, MAX_CPUS, MAX_NODES, Machine,
    OneCpu, Region, SetupError, Table, Topology, WrongRegister, X86_64, X86_64Registers,
    handle::fail_heap_after,
};

/// A machine whose methods can return wrong values. Its memory is that of `inner`.
struct Odd {
    inner: TestMachine,
    shift: usize,
    cpus: usize,
    template: Mutex<Option<Frame>>,
    registers: X86_64Registers,
}

const FRAMES: u32 = 64;

impl Odd {
    fn new() -> Self {
        Self {
            inner: TestMachine::new(FRAMES, 1),
            shift: 0,
            cpus: 1,
            template: Mutex::new(None),
            registers: X86_64Registers {
                efer: 1 << 11,
                cr0: 1 << 16,
                cr4: 0,
                pat: 6,
            },
        }
    }
}

// SAFETY: construction refuses every machine of this type whose methods return other values than those of `inner`. A
// template is the exception, but it is read only if it is a frame of `inner`.
unsafe impl Machine for Odd {
    type Arch = X86_64;
    type Threads = OneCpu;

    fn memory_base(&self) -> NonNull<u8> {
        let base = self.inner.memory_base();
        NonNull::new(base.as_ptr().wrapping_add(self.shift)).unwrap()
    }

    fn has_memory(&self, range: FrameRange) -> bool {
        self.inner.has_memory(range)
    }

    fn template(&self) -> Option<Frame> {
        *self.template.lock().unwrap()
    }

    fn cpu_count(&self) -> usize {
        self.cpus
    }

    fn registers(&self) -> Option<X86_64Registers> {
        Some(self.registers)
    }

    fn load_root(&self, _root: Frame) {}

    fn invalidate_local(&self, _what: &Invalidation) {}

    fn invalidate_remote(&self, _targets: CpuSet, _root: Frame, _what: &[Invalidation]) {}
}

/// The start, the number of frames and the node of each region.
type Regions = &'static [(u32, u32, u8)];

const fn range(start: u32, count: u32) -> FrameRange {
    FrameRange {
        start: Frame::new(start),
        count,
    }
}

#[test]
fn wrong_machines_are_refused() {
    let odd = |change: fn(&mut Odd)| {
        let mut machine = Odd::new();
        change(&mut machine);
        let region = Region {
            range: range(0, FRAMES),
            node: 0,
        };
        let base = machine.memory_base().addr().get();
        (Frames::new(machine, &[region]).err(), base)
    };
    assert_eq!(odd(|_| {}).0, None);
    assert_eq!(odd(|m| m.cpus = MAX_CPUS).0, None);
    assert_eq!(odd(|m| m.cpus = 0).0, Some(SetupError::CpuCount(0)));
    assert_eq!(
        odd(|m| m.cpus = MAX_CPUS + 1).0,
        Some(SetupError::CpuCount(MAX_CPUS + 1))
    );
    assert_eq!(odd(|m| m.registers.efer |= 1).0, None);
    let wrong = WrongRegister {
        field: "CR0.WP",
        found: 0,
        wanted: 1 << 16,
    };
    assert_eq!(
        odd(|m| m.registers.cr0 = 0).0,
        Some(SetupError::Register(wrong))
    );
    let (error, base) = odd(|m| m.shift = 8);
    assert_eq!(error, Some(SetupError::Misaligned(base)));
    assert_eq!(
        odd(|m| m.template = Mutex::new(Some(Frame::new(FRAMES)))).0,
        None
    );
    assert_eq!(
        odd(|m| m.template = Mutex::new(Some(Frame::new(FRAMES - 1)))).0,
        Some(SetupError::ManagedTemplate(Frame::new(FRAMES - 1)))
    );
}

#[test]
fn wrong_regions_are_refused() {
    use SetupError::{EmptyRegion, NoMemory, NoRoomForMetadata, NoSuchNode, NotMemory, Overlap};
    const NODES: u8 = MAX_NODES as u8;
    let table: [(Regions, Option<SetupError>); 13] = [
        (&[(0, FRAMES, 0)], None),
        (&[(0, 8, NODES - 1), (8, 8, 0)], None),
        (&[], Some(NoMemory)),
        (&[(0, 0, 0)], Some(EmptyRegion(Frame::new(0)))),
        (&[(0, 9, 0), (4, 0, 0)], Some(EmptyRegion(Frame::new(4)))),
        (&[(0, 65, 0)], Some(NotMemory(range(0, 65)))),
        (&[(64, 1, 0)], Some(NotMemory(range(64, 1)))),
        (
            &[(u32::MAX, u32::MAX, 0)],
            Some(NotMemory(range(u32::MAX, u32::MAX))),
        ),
        (
            &[(0, 10, 0), (9, 3, 0)],
            Some(Overlap(range(0, 10), range(9, 3))),
        ),
        (
            &[(9, 3, 0), (20, 4, 0), (0, 64, 0)],
            Some(Overlap(range(9, 3), range(0, 64))),
        ),
        (&[(0, 10, NODES)], Some(NoSuchNode(NODES))),
        (&[(0, 10, u8::MAX)], Some(NoSuchNode(u8::MAX))),
        (&[(0, 1, 0), (63, 1, 0)], Some(NoRoomForMetadata(1))),
    ];
    for (regions, expected) in table {
        let regions: Vec<Region> = regions
            .iter()
            .map(|&(start, count, node)| Region {
                range: range(start, count),
                node,
            })
            .collect();
        let error = Frames::new(Odd::new(), &regions).err();
        assert_eq!(error, expected, "{regions:?}");
    }
}

#[test]
fn a_topology_has_the_nodes_of_the_regions() {
    let region = |start, node| Region {
        range: range(start, 8),
        node,
    };
    let mut frames = Frames::new(Odd::new(), &[region(0, 0), region(8, 1)]).unwrap();
    let mismatch = |topology| SetupError::NodeCount {
        regions: 2,
        topology,
    };
    assert_eq!(frames.set_topology(Topology::new(1)), Err(mismatch(1)));
    assert_eq!(frames.set_topology(Topology::new(3)), Err(mismatch(3)));
    assert_eq!(frames.topology().nodes(), 2);
    assert_eq!(frames.set_topology(Topology::new(2)), Ok(()));
}

/// Returns the frames of a machine whose template a test sets.
fn odd_frames() -> Arc<Frames<Odd>> {
    let region = Region {
        range: range(0, FRAMES),
        node: 0,
    };
    Arc::new(Frames::new(Odd::new(), &[region]).unwrap())
}

#[test]
fn a_managed_template_is_a_frame_of_the_kernel() {
    let frames = odd_frames();
    let first = Table::new(Arc::clone(&frames)).unwrap();
    let kernel = frames.allocate_zeroed(0, FrameKind::Kernel).unwrap();
    let data = frames.allocate_zeroed(0, FrameKind::Anonymous).unwrap();
    let free = (0..frames.end())
        .find(|&number| frames.kind_at(number) == Some(FrameKind::Free))
        .map(Frame::new)
        .unwrap();
    let refused = |frame| Some(SetupError::ManagedTemplate(frame));
    let table = [
        ("a kernel frame", kernel.frame(), None),
        ("a root", first.root(), refused(first.root())),
        ("a frame of data", data.frame(), refused(data.frame())),
        ("metadata", Frame::new(0), refused(Frame::new(0))),
        ("a free frame", free, refused(free)),
    ];
    for (name, frame, expected) in table {
        *frames.machine().template.lock().unwrap() = Some(frame);
        let error = Table::new(Arc::clone(&frames)).err();
        assert_eq!(error, expected, "{name}");
    }
}

#[test]
fn the_kernel_half_is_copied_from_the_template() {
    let frames = odd_frames();
    let template = frames.allocate_zeroed(0, FrameKind::Kernel).unwrap();
    *frames.machine().template.lock().unwrap() = Some(template.frame());
    let words = frames.template_words(template.frame()).unwrap();
    for index in [0, 511] {
        words[index].store(0x1003, Relaxed);
    }
    let table = Table::new(Arc::clone(&frames)).unwrap();
    let copy = frames.table_words(table.root());
    assert_eq!(copy[0].load(Relaxed), 0);
    assert_eq!(copy[511].load(Relaxed), 0x1003);
}

#[test]
fn tables_need_a_frame_and_heap() {
    let frames = super::machine::frames_with(FRAMES, 2);
    let table = || Table::new(Arc::clone(&frames)).err();
    frames.fail_after(Some(0));
    assert_eq!(table(), Some(SetupError::OutOfFrames));
    fail_heap_after(Some(0));
    assert_eq!(table(), Some(SetupError::OutOfHeap));
    assert_eq!(table(), None);
    fail_heap_after(Some(0));
    let region = Region {
        range: range(0, FRAMES),
        node: 0,
    };
    let error = Frames::new(TestMachine::new(FRAMES, 2), &[region]).unwrap_err();
    assert_eq!(error, SetupError::OutOfHeap);
}

#[test]
fn errors_name_the_value() {
    let table = [
        (
            SetupError::CpuCount(65),
            "65 CPUs, where 1 to 64 are possible",
        ),
        (
            SetupError::Register(WrongRegister {
                field: "CR4.PCIDE",
                found: 0x2_0000,
                wanted: 0,
            }),
            "CR4.PCIDE is 0x20000, where 0x0 is needed",
        ),
        (
            SetupError::Misaligned(0x1008),
            "memory base 0x1008 is not a multiple of 4096",
        ),
        (
            SetupError::NotMemory(range(16, 16)),
            "frames 0x10..0x20 are not memory",
        ),
        (
            SetupError::Overlap(range(0, 2), range(1, 2)),
            "frames 0x0..0x2 and 0x1..0x3 overlap",
        ),
        (
            SetupError::NoSuchNode(8),
            "node 8, where 0 to 7 are possible",
        ),
        (
            SetupError::NoRoomForMetadata(3),
            "no region has room for 3 frames of metadata",
        ),
    ];
    for (error, text) in table {
        assert_eq!(error.to_string(), text);
    }
}
