//! The machine of the kernel, for the test kit, and mistakes in it that the kit must find.

use core::ptr::NonNull;

use memwright_table::{
    CpuId, CpuSet, Entry, Frame, FrameRange, Invalidation, Machine, Page, PageRange, Table,
    VirtAddr,
};
use memwright_testkit::{TestMachine, Trap};

use crate::user::Buffer;
use crate::{Hardware, thread, user};

/// A mistake of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// Invalidates nothing on the calling CPU.
    NothingHere,
    /// Invalidates nothing on other CPUs.
    NothingElsewhere,
    /// Invalidates only the first of several pages.
    FirstPage,
}

impl Mistake {
    /// The mistakes that programs can notice under QEMU. On AArch64, an invalidation on the calling CPU applies to all
    /// CPUs. QEMU's RISC-V processors drop all translations at each fence.
    pub const ALL: &[Self] = if cfg!(target_arch = "aarch64") {
        &[Self::NothingHere, Self::FirstPage]
    } else if cfg!(target_arch = "riscv64") {
        &[Self::NothingHere, Self::NothingElsewhere]
    } else {
        &[Self::NothingHere, Self::NothingElsewhere, Self::FirstPage]
    };
}

/// The machine, possibly with a mistake.
#[derive(Clone, Copy)]
pub struct Mistaken {
    pub hardware: Hardware,
    pub buffer: Buffer,
    pub mistake: Option<Mistake>,
}

impl Mistaken {
    /// Returns the invalidation that is performed instead of `what`.
    fn altered(&self, what: &Invalidation) -> Invalidation {
        match *what {
            Invalidation::Pages { first, stride, .. }
                if self.mistake == Some(Mistake::FirstPage) =>
            {
                let count = 1;
                Invalidation::Pages {
                    first,
                    count,
                    stride,
                }
            }
            other => other,
        }
    }
}

// SAFETY: the buffer is accessed by the thread that runs the kit only.
unsafe impl Send for Mistaken {}
// SAFETY: as above.
unsafe impl Sync for Mistaken {}

// SAFETY: as for `Hardware`. After a mistake, a stale translation lets a program of the kit access a frame that has a
// new use. The kit ends at the first wrong value.
unsafe impl Machine for Mistaken {
    type Arch = <Hardware as Machine>::Arch;
    type Threads = Hardware;

    fn memory_base(&self) -> NonNull<u8> {
        self.hardware.memory_base()
    }

    fn has_memory(&self, range: FrameRange) -> bool {
        self.hardware.has_memory(range)
    }

    fn template(&self) -> Option<Frame> {
        self.hardware.template()
    }

    fn cpu_count(&self) -> usize {
        self.hardware.cpu_count()
    }

    fn load_root(&self, root: Frame) {
        self.hardware.load_root(root);
    }

    fn invalidate_local(&self, what: &Invalidation) {
        if self.mistake != Some(Mistake::NothingHere) {
            self.hardware.invalidate_local(&self.altered(what));
        }
    }

    fn invalidate_remote(&self, targets: CpuSet, root: Frame, what: &[Invalidation]) {
        if self.mistake == Some(Mistake::NothingElsewhere) {
            return;
        }
        for one in what {
            let one = [self.altered(one)];
            self.hardware.invalidate_remote(targets, root, &one);
        }
    }
}

/// The CPU that ran the thread before the guard was created.
pub struct Before(usize);

impl Drop for Before {
    fn drop(&mut self) {
        thread::move_to(self.0);
    }
}

impl TestMachine for Mistaken {
    type Acting = Before;

    fn act_as(&self, cpu: CpuId) -> Before {
        let before = Before(memwright_example_boot::cpu());
        thread::move_to(cpu.index());
        before
    }

    fn load(&self, _: &Table<Self>, address: VirtAddr, into: &mut [u8]) -> Result<(), Trap> {
        self.buffer.load(address, into)
    }

    fn store(&self, _: &Table<Self>, address: VirtAddr, from: &[u8]) -> Result<(), Trap> {
        self.buffer.store(address, from)
    }

    fn fetch(&self, table: &Table<Self>, address: VirtAddr) -> Result<u8, Trap> {
        user::fetch(frame(table, address.page()), address)
    }

    fn unload(&self) {
        self.hardware.load_root(self.hardware.root);
    }
}

/// Returns the frame that a page has in the page tables.
fn frame(table: &Table<Mistaken>, page: Page) -> Option<Frame> {
    let mut cursor = table.look(PageRange::new(page, page.add(1)));
    let extent = cursor.next_filled()?;
    match extent.entry {
        Entry::Present(present) => {
            let offset = page.number() - extent.range.start.number();
            Some(Frame::new(present.frame.number() + offset as u32))
        }
        Entry::Empty | Entry::Marker(_) | Entry::Swapped(_) | Entry::Migrating(_) => None,
    }
}
