//! A swap device in host memory that finishes each transfer at once.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use memwright::{DeviceError, Direction, Submission, SwapDevice, Ticket, Transfer};
use memwright_table::{Frames, PAGE_SIZE};

use crate::machine::Emulator;

/// The pages that are swapped out, by slot.
#[derive(Default)]
pub struct MemorySwap(Mutex<HashMap<u32, Box<[u8; PAGE_SIZE]>>>);

impl MemorySwap {
    fn pages(&self) -> MutexGuard<'_, HashMap<u32, Box<[u8; PAGE_SIZE]>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SwapDevice<&'static Emulator> for MemorySwap {
    fn slots(&self) -> u32 {
        256
    }

    fn most_pending(&self) -> usize {
        0
    }

    fn submit(&self, frames: &Frames<&'static Emulator>, transfer: Transfer) -> Submission {
        let mut pages = self.pages();
        Submission::Done(match transfer.direction {
            Direction::Out => {
                let mut page = Box::new([0; PAGE_SIZE]);
                frames.read(transfer.frame, 0, &mut page[..]);
                pages.insert(transfer.slot, page);
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

    fn complete(&self, _: &Frames<&'static Emulator>, _: Ticket) -> Result<(), DeviceError> {
        unreachable!("no transfer is pending")
    }

    fn discard(&self, _: &Frames<&'static Emulator>, slot: u32) {
        self.pages().remove(&slot);
    }
}
