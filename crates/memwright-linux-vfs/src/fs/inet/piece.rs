//! The inbox of a socket: the bytes or datagrams that have arrived and have not been received yet.

use crate::fs::inet::ancillary::Header;
use alloc::{collections::VecDeque, vec::Vec};
use memwright_table::TryPush;

/// Charge in bytes of a datagram or of a piece of a stream, in addition to its bytes.
pub const OVERHEAD: usize = 512;

/// Maximum size in bytes of a piece of a stream in which several sends are combined.
const JOINED: usize = 4096;

/// A datagram, or a part of a stream, in an inbox.
pub struct Piece {
    /// The data, including the part that was received already.
    pub bytes: Vec<u8>,
    /// Number of bytes that were received already.
    pub start: usize,
    /// The header of a datagram; `None` for a stream.
    pub header: Option<Header>,
}

impl Piece {
    /// Returns the number of bytes that were not yet received.
    #[must_use]
    pub const fn left(&self) -> usize {
        self.bytes.len() - self.start
    }

    /// Returns the charge in bytes against the receive buffer.
    #[must_use]
    pub const fn charge(&self) -> usize {
        self.left() + OVERHEAD
    }
}

/// The pieces that have arrived and have not been received yet, in order of arrival.
#[derive(Default)]
pub struct Inbox {
    pieces: VecDeque<Piece>,
    /// Sum of the charges in bytes of the pieces, including the piece that a receiver has taken.
    charged: usize,
    /// Number of unreceived bytes in the pieces, without the piece that a receiver has taken.
    bytes: usize,
    /// Number of unreceived bytes in the piece that a receiver has taken out of the inbox.
    out: usize,
    /// Number of bytes that have been appended to the stream since its start.
    received: u64,
}

impl Inbox {
    /// Returns the charge in bytes of all pieces, including the piece that a receiver has taken.
    #[must_use]
    pub const fn charged(&self) -> usize {
        self.charged
    }

    /// Returns the number of unreceived bytes in the inbox, without the piece that a receiver has taken.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the number of bytes that have been appended to the stream since its start.
    #[must_use]
    pub const fn received(&self) -> u64 {
        self.received
    }

    /// Returns the position in the stream of the first byte that was not received yet.
    #[must_use]
    pub const fn front_sequence(&self) -> u64 {
        self.received - (self.bytes + self.out) as u64
    }

    /// Drops the first byte of the inbox. Does nothing while a receiver has taken the first piece.
    pub fn drop_first(&mut self) {
        if self.out > 0 {
            return;
        }
        if let Some(first) = self.pieces.front_mut() {
            first.start += 1;
            self.bytes -= 1;
            self.charged -= 1;
            if first.left() == 0 {
                self.pieces.pop_front();
                self.charged -= OVERHEAD;
            }
        }
    }

    /// Returns whether the inbox has no pieces.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Returns the first piece.
    #[must_use]
    pub fn front(&self) -> Option<&Piece> {
        self.pieces.front()
    }

    /// Appends a piece.
    ///
    /// # Errors
    /// The piece, if there is no memory.
    pub fn push(&mut self, piece: Piece) -> Result<(), Piece> {
        // Reserve room for one more piece, because a receiver can put back a piece that it has taken.
        if self.pieces.try_reserve(2).is_err() {
            return Err(piece);
        }
        self.charged += piece.charge();
        self.bytes += piece.left();
        #[expect(clippy::disallowed_methods, reason = "there is room")]
        self.pieces.push_back(piece);
        Ok(())
    }

    /// Appends bytes of a stream. They become part of the last piece if that piece then has at most `JOINED` bytes.
    ///
    /// # Errors
    /// `bytes`, if there is no memory.
    pub fn append(&mut self, bytes: Vec<u8>) -> Result<(), Vec<u8>> {
        let length = bytes.len();
        self.received += length as u64;
        if let Some(last) = self.pieces.back_mut()
            && last.bytes.len() + length <= JOINED
        {
            if last.bytes.try_push_all(&bytes).is_err() {
                self.received -= length as u64;
                return Err(bytes);
            }
            self.charged += length;
            self.bytes += length;
            return Ok(());
        }
        let piece = Piece {
            bytes,
            start: 0,
            header: None,
        };
        self.push(piece).map_err(|piece| {
            self.received -= length as u64;
            piece.bytes
        })
    }

    /// Takes the first piece out of the inbox and returns it. The piece stays charged until [`Self::uncharge`].
    pub fn take(&mut self) -> Option<Piece> {
        let piece = self.pieces.pop_front()?;
        self.out = piece.left();
        self.bytes -= self.out;
        Some(piece)
    }

    /// Puts back a piece that [`Self::take`] returned.
    ///
    /// # Errors
    /// The piece, if there is no memory. This occurs only if the inbox was emptied in the meantime.
    pub fn put_back(&mut self, piece: Piece) -> Result<(), Piece> {
        if self.pieces.try_reserve(1).is_err() {
            return Err(piece);
        }
        self.bytes += piece.left();
        self.out = 0;
        #[expect(clippy::disallowed_methods, reason = "there is room")]
        self.pieces.push_front(piece);
        Ok(())
    }

    /// Reduces the charge of the inbox by `charge` bytes, because bytes of the taken piece were received.
    pub const fn uncharge(&mut self, charge: usize) {
        self.out = 0;
        self.charged = self.charged.saturating_sub(charge);
    }

    /// Copies bytes of a stream to `to`, starting `from` bytes after the first unreceived byte. The bytes stay in the
    /// inbox. Returns the number of bytes copied.
    #[must_use]
    pub fn peek(&self, mut from: usize, to: &mut [u8]) -> usize {
        let mut done = 0;
        for piece in &self.pieces {
            let bytes = &piece.bytes[piece.start..];
            let skipped = from.min(bytes.len());
            from -= skipped;
            let bytes = &bytes[skipped..];
            let count = bytes.len().min(to.len() - done);
            to[done..done + count].copy_from_slice(&bytes[..count]);
            done += count;
            if done == to.len() {
                break;
            }
        }
        done
    }

    /// Takes all pieces out of the inbox of a closed or disconnected socket, and returns them.
    #[must_use]
    pub fn empty(&mut self) -> VecDeque<Piece> {
        self.charged = 0;
        self.bytes = 0;
        self.out = 0;
        core::mem::take(&mut self.pieces)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_joined_peeked_and_taken() {
        let mut inbox = Inbox::default();
        for part in [&b"abc"[..], b"de", &[b'x'; 4096]] {
            assert!(inbox.append(part.to_vec()).is_ok());
        }
        assert_eq!((inbox.bytes(), inbox.pieces.len()), (4101, 2));
        assert_eq!(inbox.charged(), 4101 + 2 * OVERHEAD);
        let mut seen = [0; 4];
        assert_eq!(inbox.peek(3, &mut seen), 4);
        assert_eq!(&seen, b"dexx");
        assert_eq!(inbox.peek(4100, &mut seen), 1);
        let mut first = inbox.take().unwrap();
        first.start = 2;
        inbox.uncharge(2);
        assert!(inbox.put_back(first).is_ok());
        assert_eq!(
            (inbox.bytes(), inbox.charged()),
            (4099, 4099 + 2 * OVERHEAD)
        );
        assert_eq!(inbox.front().map(Piece::left), Some(3));
        assert_eq!(inbox.empty().len(), 2);
        assert!(inbox.is_empty());
    }
}
