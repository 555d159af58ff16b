//! Compressed memory as a swap device (Linux 7.2 `drivers/block/zram/zram_drv.c`). A page that repeats one word is
//! stored as that word. All other pages are compressed with LZ4 and packed into frames. If compressing a page saves no
//! memory, the page occupies a complete frame.

use super::{
    store::{Piece, Store},
    unpack::{Corrupt, unpack},
};
use alloc::vec::Vec;
use lz4_flex::block::{CompressTable, compress_into_with_table, get_maximum_output_size};
use memwright::DeviceError;
use memwright_linux_abi::M;
use memwright_linux_base::sync::{Lock, Rank};
use memwright_table::{Frame, Frames, OutOfMemory, PAGE_SIZE, TryPush};

/// The minimum length in bytes of a compressed form that is not stored. The page is then stored uncompressed, because
/// its compressed form would occupy a frame as well (`huge_class_size`).
const LEAST_GAIN: usize = PAGE_SIZE / 2 + 1;

/// The way in which the page of a slot is stored.
#[derive(Clone, Copy)]
enum Kept {
    Nothing,
    /// A page that repeats the contained word.
    Repeated(u64),
    /// The piece that contains the page, compressed or not, and the number of bytes in the piece.
    Packed(Piece, u16),
}

/// The number of slots whose entries are allocated together.
const CHUNK: usize = 1 << 14;

struct Inner {
    kept: Vec<Vec<Kept>>,
    store: Store,
    table: CompressTable,
    plain: Vec<u8>,
    packed: Vec<u8>,
}

/// A zram device: a disk in compressed memory.
pub struct Zram {
    inner: Lock<Inner>,
}

fn zeroes(length: usize) -> Result<Vec<u8>, OutOfMemory> {
    let mut bytes = Vec::new();
    bytes.try_fill(length, 0)?;
    Ok(bytes)
}

impl Zram {
    /// Creates a device with `slots` slots.
    ///
    /// # Errors
    /// `OutOfMemory` if the metadata cannot be allocated.
    pub fn new(frames: &Frames<M>, slots: u32) -> Result<Self, OutOfMemory> {
        let mut kept = Vec::new();
        let mut left = slots as usize;
        while left > 0 {
            let count = left.min(CHUNK);
            let mut chunk = Vec::new();
            chunk.try_make_room(count)?;
            #[expect(clippy::disallowed_methods, reason = "there is room")]
            chunk.resize(count, Kept::Nothing);
            kept.try_push(chunk)?;
            left -= count;
        }
        let mut store = Store::new();
        store.fill_spare(frames);
        let inner = Inner {
            kept,
            store,
            table: CompressTable::small(),
            plain: zeroes(PAGE_SIZE)?,
            packed: zeroes(get_maximum_output_size(PAGE_SIZE))?,
        };
        Ok(Self {
            inner: Lock::new(Rank::Swap, inner),
        })
    }
}

impl Inner {
    fn kept(&mut self, slot: u32) -> &mut Kept {
        &mut self.kept[slot as usize / CHUNK][slot as usize % CHUNK]
    }

    fn drop_kept(&mut self, frames: &Frames<M>, slot: u32) {
        match core::mem::replace(self.kept(slot), Kept::Nothing) {
            Kept::Nothing | Kept::Repeated(_) => {}
            Kept::Packed(piece, _) => self.store.take(frames, piece),
        }
    }

    /// Stores the page in `plain`, compressed if that saves memory. Returns the way in which the page is stored.
    fn compress(&mut self, frames: &Frames<M>) -> Result<Kept, DeviceError> {
        let packed = compress_into_with_table(&self.plain, &mut self.packed, &mut self.table);
        let bytes = match packed {
            Ok(length) if length < LEAST_GAIN => &self.packed[..length],
            Ok(_) | Err(_) => &self.plain[..],
        };
        let piece = self.store.put(frames, bytes);
        let piece = piece.map_err(|_| DeviceError::Full)?;
        Ok(Kept::Packed(piece, bytes.len() as u16))
    }
}

impl Inner {
    /// Fills `plain` with the contents of `slot`; zeroes if the slot is empty.
    fn unpack(&mut self, frames: &Frames<M>, slot: u32) -> Result<(), DeviceError> {
        match *self.kept(slot) {
            Kept::Nothing => self.plain.fill(0),
            Kept::Repeated(word) => {
                for bytes in self.plain.chunks_exact_mut(size_of::<u64>()) {
                    bytes.copy_from_slice(&word.to_le_bytes());
                }
            }
            Kept::Packed(piece, length) if usize::from(length) == PAGE_SIZE => {
                self.store.get(frames, piece, &mut self.plain);
            }
            Kept::Packed(piece, length) => {
                let packed = &mut self.packed[..usize::from(length)];
                self.store.get(frames, piece, packed);
                unpack(packed, &mut self.plain).map_err(|Corrupt| DeviceError::Io)?;
            }
        }
        Ok(())
    }
}

impl Zram {
    /// Reads bytes at `offset` in a page.
    ///
    /// # Errors
    /// `DeviceError` if the contents cannot be decompressed.
    pub fn get(
        &self,
        frames: &Frames<M>,
        page: u32,
        offset: usize,
        bytes: &mut [u8],
    ) -> Result<(), DeviceError> {
        let mut inner = self.inner.lock();
        inner.unpack(frames, page)?;
        bytes.copy_from_slice(&inner.plain[offset..][..bytes.len()]);
        Ok(())
    }

    /// Writes bytes at `offset` in a page.
    ///
    /// # Errors
    /// `DeviceError` if the previous contents cannot be decompressed or there is no memory for the new ones. The
    /// contents are then unchanged.
    pub fn put(
        &self,
        frames: &Frames<M>,
        page: u32,
        offset: usize,
        bytes: &[u8],
    ) -> Result<(), DeviceError> {
        let mut inner = self.inner.lock();
        inner.unpack(frames, page)?;
        inner.plain[offset..][..bytes.len()].copy_from_slice(bytes);
        let kept = match repeated(&inner.plain) {
            Some(word) => Kept::Repeated(word),
            None => inner.compress(frames)?,
        };
        inner.drop_kept(frames, page);
        *inner.kept(page) = kept;
        Ok(())
    }
}

/// Returns the word of which `bytes` is a repetition; `None` if there is no such word.
fn repeated(bytes: &[u8]) -> Option<u64> {
    let (first, _) = bytes.split_first_chunk()?;
    bytes
        .chunks_exact(first.len())
        .all(|word| word == first)
        .then(|| u64::from_le_bytes(*first))
}

impl Zram {
    /// Stores the page in `frame` in `slot`.
    ///
    /// # Errors
    /// `DeviceError::Full` if there is no memory for the page. The slot is then empty.
    pub fn write(&self, frames: &Frames<M>, slot: u32, frame: Frame) -> Result<(), DeviceError> {
        let repeated = frames.repeated_word(frame);
        let mut inner = self.inner.lock();
        inner.drop_kept(frames, slot);
        let kept = match repeated {
            Some(word) => Kept::Repeated(word),
            None => {
                frames.read(frame, 0, &mut inner.plain);
                inner.compress(frames)?
            }
        };
        *inner.kept(slot) = kept;
        Ok(())
    }

    /// Fills `frame` with the page in `slot`.
    ///
    /// # Errors
    /// `DeviceError` if the slot is empty or its contents cannot be decompressed.
    pub fn read(&self, frames: &Frames<M>, slot: u32, frame: Frame) -> Result<(), DeviceError> {
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        match *inner.kept(slot) {
            Kept::Nothing => Err(DeviceError::Io),
            Kept::Repeated(word) => {
                frames.repeat_word(frame, word);
                Ok(())
            }
            Kept::Packed(..) => {
                inner.unpack(frames, slot)?;
                frames.write(frame, 0, &inner.plain);
                Ok(())
            }
        }
    }

    /// Discards the page in `slot`.
    pub fn discard(&self, frames: &Frames<M>, slot: u32) {
        self.inner.lock().drop_kept(frames, slot);
    }

    /// Returns the number of bytes of memory that the stored pages occupy.
    pub fn stored(&self) -> u64 {
        self.inner.lock().store.frames() * PAGE_SIZE as u64
    }
}
