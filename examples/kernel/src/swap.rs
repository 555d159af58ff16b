//! A swap device in the kernel's heap, which finishes each transfer at once.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;

use memwright::{DeviceError, Direction, Submission, SwapDevice, Ticket, Transfer};
use memwright_table::sync::{Lock, Rank};
use memwright_table::{Frames, PAGE_SIZE};

use crate::Hardware;

/// The pages that are swapped out, by slot.
pub struct HeapSwap(Lock<BTreeMap<u32, Box<[u8; PAGE_SIZE]>>, Hardware>);

impl HeapSwap {
    pub fn new() -> Self {
        Self(Lock::new(Rank::Swap, BTreeMap::new()))
    }
}

impl SwapDevice<Hardware> for HeapSwap {
    fn slots(&self) -> u32 {
        64
    }

    fn most_pending(&self) -> usize {
        0
    }

    fn submit(&self, frames: &Frames<Hardware>, transfer: Transfer) -> Submission {
        let mut pages = self.0.lock();
        Submission::Done(match transfer.direction {
            Direction::Out => {
                let page = pages.entry(transfer.slot);
                let page = page.or_insert_with(|| Box::new([0; PAGE_SIZE]));
                frames.read(transfer.frame, 0, &mut page[..]);
                Ok(())
            }
            Direction::In => match pages.get(&transfer.slot) {
                Some(page) => {
                    frames.write(transfer.frame, 0, &page[..]);
                    Ok(())
                }
                None => Err(DeviceError::Io),
            },
        })
    }

    fn complete(&self, _: &Frames<Hardware>, _: Ticket) -> Result<(), DeviceError> {
        unreachable!("no transfer is pending")
    }

    fn discard(&self, _: &Frames<Hardware>, slot: u32) {
        self.0.lock().remove(&slot);
    }
}
