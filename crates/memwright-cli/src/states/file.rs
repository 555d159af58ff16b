//! The file of a machine's snapshot.
//!
//! The file consists of a magic number, the length of the device stream (8 bytes, little-endian), the stream, pieces of
//! memory, a piece of length 0, and a CRC-32 of all bytes before it. Each piece has its NUMA node (4 bytes), its length
//! (4 bytes), its offset (8 bytes) and its contents. Zero-filled pages are omitted.

use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::FileExt;

use crc32fast::Hasher;
use rustix::fs::SeekFrom;
use rustix::io::Errno;

use crate::count::tables::Part;

const MAGIC: &[u8; 16] = b"memwright state\x01";
const PAGE: usize = 4096;
/// The maximum length of a piece of memory in bytes.
const PIECE: usize = 1 << 20;
/// The size of the header of a piece in bytes.
const HEADER: usize = 16;
/// The maximum length of the device stream in bytes; QEMU 10 with 64 CPUs writes less than 2 MiB.
const MOST_DEVICES: u64 = 64 << 20;

/// Why a snapshot file cannot be used.
#[derive(Debug)]
pub enum StateError {
    /// It cannot be read.
    Io(io::Error),
    /// It is truncated, or its checksum does not match.
    Damaged,
}

impl fmt::Display for StateError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(formatter, "{error}"),
            Self::Damaged => formatter.write_str("the file is damaged"),
        }
    }
}

impl std::error::Error for StateError {}

impl From<io::Error> for StateError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::Damaged,
            _ => Self::Io(error),
        }
    }
}

/// A machine's snapshot.
#[derive(Debug)]
pub struct State {
    file: File,
    devices: Vec<u8>,
    // The offset of the first piece of memory in the file.
    memory: u64,
}

impl State {
    /// Opens a snapshot: verifies the checksum of the complete file, and reads the device stream.
    ///
    /// # Errors
    /// I/O errors of reading, and [`StateError::Damaged`].
    pub fn open(mut file: File) -> Result<Self, StateError> {
        check(&mut file)?;
        let mut magic = [0; MAGIC.len()];
        file.read_exact_at(&mut magic, 0)?;
        let mut length = [0; 8];
        file.read_exact_at(&mut length, MAGIC.len() as u64)?;
        let length = u64::from_le_bytes(length);
        if magic != *MAGIC || length > MOST_DEVICES {
            return Err(StateError::Damaged);
        }
        let begin = (MAGIC.len() + 8) as u64;
        let mut devices = vec![0; length as usize];
        file.read_exact_at(&mut devices, begin)?;
        Ok(Self {
            file,
            devices,
            memory: begin + length,
        })
    }

    /// Returns the device stream: everything that QEMU saved except memory.
    pub fn devices(&self) -> &[u8] {
        &self.devices
    }

    /// Writes the memory into empty files, one for each NUMA node.
    ///
    /// # Errors
    /// I/O errors of reading and writing, and an error if the file does not have the format that [`write()`] writes.
    pub fn fill(&self, parts: &[Part]) -> Result<(), StateError> {
        for part in parts {
            part.file.set_len(part.size)?;
        }
        let mut at = self.memory;
        let mut bytes = vec![0; PIECE];
        loop {
            let mut header = [0; HEADER];
            self.file.read_exact_at(&mut header, at)?;
            let (part, length, offset) = decode(&header);
            if length == 0 {
                return Ok(());
            }
            let (Some(piece), Some(part)) = (bytes.get_mut(..length), parts.get(part)) else {
                return Err(StateError::Damaged);
            };
            at += HEADER as u64;
            self.file.read_exact_at(piece, at)?;
            part.file.write_all_at(piece, offset)?;
            at += length as u64;
        }
    }
}

/// Reads the complete file and verifies its checksum.
fn check(file: &mut File) -> Result<(), StateError> {
    let length = file.metadata()?.len();
    let body = length.checked_sub(4).ok_or(StateError::Damaged)?;
    let mut hash = Hasher::new();
    let mut rest = (&*file).take(body);
    let mut bytes = vec![0; PIECE];
    loop {
        let got = rest.read(&mut bytes)?;
        if got == 0 {
            break;
        }
        hash.update(&bytes[..got]);
    }
    let mut stored = [0; 4];
    file.read_exact_at(&mut stored, body)?;
    if rest.limit() > 0 || u32::from_le_bytes(stored) != hash.finalize() {
        return Err(StateError::Damaged);
    }
    Ok(())
}

fn encode(part: usize, length: usize, offset: u64) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..4].copy_from_slice(&(part as u32).to_le_bytes());
    header[4..8].copy_from_slice(&(length as u32).to_le_bytes());
    header[8..].copy_from_slice(&offset.to_le_bytes());
    header
}

/// Decodes the node, the length and the offset of a piece.
fn decode(header: &[u8; HEADER]) -> (usize, usize, u64) {
    let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| header[at + byte]));
    let offset = u64::from(word(8)) | u64::from(word(12)) << 32;
    (word(0) as usize, word(4) as usize, offset)
}

/// Writes data, and computes its checksum along the way.
struct Summing<W> {
    output: W,
    hash: Hasher,
}

impl<W: Write> Summing<W> {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hash.update(bytes);
        self.output.write_all(bytes)
    }
}

/// Writes the snapshot of a machine whose memory is in these files. Returns the snapshot, opened for reading.
///
/// # Errors
/// I/O errors of reading and writing.
pub fn write(file: File, devices: Vec<u8>, parts: &[Part]) -> io::Result<State> {
    write_all(&file, &devices, parts)?;
    let memory = (MAGIC.len() + 8 + devices.len()) as u64;
    Ok(State {
        file,
        devices,
        memory,
    })
}

fn write_all(file: &File, devices: &[u8], parts: &[Part]) -> io::Result<()> {
    let mut output = Summing {
        output: BufWriter::with_capacity(PIECE, file),
        hash: Hasher::new(),
    };
    output.put(MAGIC)?;
    output.put(&(devices.len() as u64).to_le_bytes())?;
    output.put(devices)?;
    for (node, part) in parts.iter().enumerate() {
        write_part(&mut output, node, &part.file)?;
    }
    output.put(&encode(0, 0, 0))?;
    let sum = output.hash.finalize().to_le_bytes();
    output.output.write_all(&sum)?;
    output.output.flush()
}

fn write_part(output: &mut Summing<impl Write>, node: usize, file: &File) -> io::Result<()> {
    let mut bytes = vec![0; PIECE];
    let mut at = 0;
    while let Some((mut begin, end)) = next_data(file, at)? {
        while begin < end {
            let length = usize::try_from(end - begin).map_or(PIECE, |left| left.min(PIECE));
            let piece = &mut bytes[..length];
            file.read_exact_at(piece, begin)?;
            for run in runs(piece) {
                let offset = begin + run.start as u64;
                output.put(&encode(node, run.len(), offset))?;
                output.put(&piece[run])?;
            }
            begin += length as u64;
        }
        at = end;
    }
    Ok(())
}

/// Returns the next range of a sparse file at or after offset `at` that contains data; `None` if there is none.
fn next_data(file: &File, at: u64) -> io::Result<Option<(u64, u64)>> {
    let begin = match rustix::fs::seek(file, SeekFrom::Data(at)) {
        Ok(begin) => begin,
        Err(Errno::NXIO) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    Ok(Some((
        begin,
        rustix::fs::seek(file, SeekFrom::Hole(begin))?,
    )))
}

/// Returns the ranges of adjacent pages that are not all zeros.
fn runs(piece: &[u8]) -> Vec<std::ops::Range<usize>> {
    let mut found: Vec<std::ops::Range<usize>> = Vec::new();
    for (index, page) in piece.chunks(PAGE).enumerate() {
        if page.iter().all(|byte| *byte == 0) {
            continue;
        }
        let (begin, end) = (index * PAGE, index * PAGE + page.len());
        match found.last_mut() {
            Some(last) if last.end == begin => last.end = end,
            Some(_) | None => found.push(begin..end),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const SIZE: u64 = 8 << 20;

    fn part(contents: &[(u64, u8)]) -> Part {
        let file = tempfile::tempfile().unwrap();
        for (offset, byte) in contents {
            file.write_all_at(&[*byte; 3 * PAGE / 2], *offset).unwrap();
        }
        Part { file, size: SIZE }
    }

    fn bytes(part: &Part) -> Vec<u8> {
        let mut bytes = vec![0; SIZE as usize];
        part.file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    }

    #[test]
    fn memory_and_devices_come_back() {
        let path = tempfile::NamedTempFile::new().unwrap();
        let create = || fs::File::options().read(true).write(true).open(path.path());
        let parts = [
            part(&[(0, 1), (PIECE as u64 - 4096, 2), (SIZE - 6144, 3)]),
            part(&[(4096, 4), (5 << 20, 0), (SIZE - 6144, 5)]),
        ];
        write(create().unwrap(), b"devices".to_vec(), &parts).unwrap();
        let state = State::open(create().unwrap()).unwrap();
        assert_eq!(state.devices(), b"devices");
        let empty = [part(&[]), part(&[])];
        state.fill(&empty).unwrap();
        for (one, other) in parts.iter().zip(&empty) {
            assert!(bytes(one) == bytes(other));
        }
        // Zero-filled pages take no space in the file.
        let length = path.as_file().metadata().unwrap().len();
        assert!(length < 12 * PAGE as u64, "{length}");
    }

    #[test]
    fn a_damaged_file_is_refused() {
        let path = tempfile::NamedTempFile::new().unwrap();
        let open = || fs::File::options().read(true).write(true).open(path.path());
        write(open().unwrap(), b"devices".to_vec(), &[part(&[(0, 1)])]).unwrap();
        let whole = fs::read(path.path()).unwrap();
        let damaged = |bytes: &[u8]| {
            fs::write(path.path(), bytes).unwrap();
            matches!(State::open(open().unwrap()), Err(StateError::Damaged))
        };
        for length in [0, 3, 4, 20, whole.len() / 2, whole.len() - 1] {
            assert!(damaged(&whole[..length]), "{length}");
        }
        for place in [0, 17, 30, whole.len() / 2, whole.len() - 1] {
            let mut changed = whole.clone();
            changed[place] ^= 1;
            assert!(damaged(&changed), "{place}");
        }
        assert!(!damaged(&whole));
    }
}
