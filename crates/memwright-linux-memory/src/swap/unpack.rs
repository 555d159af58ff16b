//! Decompresses LZ4 blocks into pages.
//!
//! The crate that compresses the blocks also has a decoder. Memory often repeats one word over a long run, for example
//! half a page. Compiled without `unsafe`, that decoder copies such a run byte by byte. This module copies the run in
//! steps, each of which is twice as long as the step before it.

/// The compressed data is invalid, or does not fill exactly one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupt;

/// The length of the shortest match. It is encoded as 0.
const MATCH_MIN: usize = 4;

/// The value of the length field of a token whose length continues in the following bytes.
const GOES_ON: usize = 15;

/// The number of bytes that are copied at a time.
const WORD: usize = size_of::<u64>();

/// The longest match that is copied in whole words, possibly past its end. Up to this length, copying whole words takes
/// less time than an exact copy. Later output overwrites the excess bytes.
const SHORT: usize = 4 * WORD;

/// Fills `page` from a block in the format of `LZ4_compress_default` (`lz4_Block_format.md` of LZ4 1.10).
///
/// # Errors
/// `Corrupt` if the block is truncated, refers to bytes outside the page, or does not fill exactly the page.
pub fn unpack(mut packed: &[u8], page: &mut [u8]) -> Result<(), Corrupt> {
    let mut at = 0;
    loop {
        let token = usize::from(take_byte(&mut packed)?);
        let length = full_length(token >> 4, &mut packed)?;
        copy_literals(&mut packed, page, at, length)?;
        at += length;
        if packed.is_empty() {
            return if at == page.len() {
                Ok(())
            } else {
                Err(Corrupt)
            };
        }
        let (distance, rest) = packed.split_first_chunk().ok_or(Corrupt)?;
        packed = rest;
        let distance = usize::from(u16::from_le_bytes(*distance));
        let length = full_length(token & GOES_ON, &mut packed)? + MATCH_MIN;
        repeat(page, at, distance, length)?;
        at += length;
    }
}

fn take_byte(packed: &mut &[u8]) -> Result<u8, Corrupt> {
    let (first, rest) = packed.split_first().ok_or(Corrupt)?;
    *packed = rest;
    Ok(*first)
}

/// Returns a complete length: `length` from the token, plus the following bytes of `packed` if the length continues
/// there.
fn full_length(mut length: usize, packed: &mut &[u8]) -> Result<usize, Corrupt> {
    if length < GOES_ON {
        return Ok(length);
    }
    loop {
        let more = take_byte(packed)?;
        length += usize::from(more);
        if more < u8::MAX {
            return Ok(length);
        }
    }
}

/// Copies `length` literal bytes.
fn copy_literals(
    packed: &mut &[u8],
    page: &mut [u8],
    at: usize,
    length: usize,
) -> Result<(), Corrupt> {
    let room = page.get_mut(at..).ok_or(Corrupt)?;
    if let (true, Some(from), Some(to)) = (
        length <= 2 * WORD,
        packed.first_chunk::<{ 2 * WORD }>(),
        room.first_chunk_mut::<{ 2 * WORD }>(),
    ) {
        *to = *from;
        *packed = &packed[length..];
        return Ok(());
    }
    let (literals, rest) = packed.split_at_checked(length).ok_or(Corrupt)?;
    let room = room.get_mut(..length).ok_or(Corrupt)?;
    room.copy_from_slice(literals);
    *packed = rest;
    Ok(())
}

/// Writes `length` bytes at `at` by repeating the `distance` bytes before `at`.
fn repeat(page: &mut [u8], at: usize, distance: usize, length: usize) -> Result<(), Corrupt> {
    let from = at.checked_sub(distance).ok_or(Corrupt)?;
    let end = at + length;
    if distance == 0 || end > page.len() {
        return Err(Corrupt);
    }
    if distance >= WORD && length <= SHORT && at + SHORT <= page.len() {
        for step in (0..length).step_by(WORD) {
            let Some(word) = page[from + step..].first_chunk::<WORD>().copied() else {
                return Err(Corrupt);
            };
            page[at + step..][..WORD].copy_from_slice(&word);
        }
        return Ok(());
    }
    // The bytes from `from` to `to` have the period `distance`. Each step copies all of them, which doubles their
    // number.
    let mut to = at;
    while to < end {
        let step = (to - from).min(end - to);
        page.copy_within(from..from + step, to);
        to += step;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::{vec, vec::Vec};
    use lz4_flex::block::{compress, decompress_into};
    use proptest::prelude::*;

    /// Returns contents that resemble those of programs: runs of words, noise, and repetitions of earlier bytes.
    fn page_of(parts: &[(u8, u16, u16)]) -> Vec<u8> {
        let mut page = Vec::new();
        let mut state = 1_u32;
        for &(kind, value, length) in parts {
            for index in 0..usize::from(length) {
                state = state
                    .wrapping_mul(1_664_525)
                    .wrapping_add(u32::from(value) | 1);
                page.push(match kind % 4 {
                    0 => value as u8,
                    1 => value.to_le_bytes()[index % 2],
                    2 => (state >> 24) as u8,
                    _ => {
                        let back = usize::from(value) % 700 + 1;
                        page.len().checked_sub(back).map_or(7, |from| page[from])
                    }
                });
            }
        }
        page
    }

    proptest! {
        #[test]
        fn what_was_packed_comes_back(parts in prop::collection::vec((any::<u8>(), any::<u16>(), 1..400_u16), 1..40)) {
            let plain = page_of(&parts);
            let mut page = vec![0xa5; plain.len()];
            prop_assert_eq!(unpack(&compress(&plain), &mut page), Ok(()));
            prop_assert_eq!(page, plain);
        }

        #[test]
        fn spoiled_blocks_are_told_of_or_fill_the_page(
            parts in prop::collection::vec((any::<u8>(), any::<u16>(), 1..100_u16), 1..20),
            at: prop::sample::Index, bits in 1..=u8::MAX, cut in 0..4_usize,
        ) {
            let plain = page_of(&parts);
            let mut packed = compress(&plain);
            let spoiled = at.index(packed.len());
            packed[spoiled] ^= bits;
            packed.truncate(packed.len() - cut.min(packed.len() - 1));
            let mut page = vec![0; plain.len()];
            let mut other = page.clone();
            let same = decompress_into(&packed, &mut other).ok() == Some(plain.len());
            prop_assert_eq!(unpack(&packed, &mut page).is_ok(), same);
            if same {
                prop_assert_eq!(page, other);
            }
        }
    }

    #[test]
    fn blocks_by_hand() {
        let mut page = [0; 12];
        assert_eq!(unpack(&[0x2f, b'a', b'b'], &mut page), Err(Corrupt));
        // Two literals, and a match of ten bytes at distance 2. Final literals are not required.
        assert_eq!(unpack(&[0x26, b'a', b'b', 2, 0, 0], &mut page), Ok(()));
        assert_eq!(&page, b"abababababab");
        // Four invalid blocks: one fills one byte too few, one fills one byte too many, one copies from before the
        // page, and one has the distance 0.
        assert_eq!(
            unpack(&[0x25, b'a', b'b', 2, 0, 0], &mut page),
            Err(Corrupt)
        );
        assert_eq!(
            unpack(&[0x27, b'a', b'b', 2, 0, 0], &mut page),
            Err(Corrupt)
        );
        assert_eq!(
            unpack(&[0x26, b'a', b'b', 3, 0, 0], &mut page),
            Err(Corrupt)
        );
        assert_eq!(
            unpack(&[0x26, b'a', b'b', 0, 0, 0], &mut page),
            Err(Corrupt)
        );
        // A block needs a token, and a token without data fills only an empty page.
        assert_eq!(unpack(&[], &mut page), Err(Corrupt));
        assert_eq!(unpack(&[0], &mut page), Err(Corrupt));
        assert_eq!(unpack(&[0], &mut []), Ok(()));
    }
}
