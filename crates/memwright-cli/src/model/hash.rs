//! SHA-256 in the form used in documents.

use sha2::{Digest, Sha256};

/// Adds one of several parts to a hash, preceded by the part's length, so that different lists of parts always hash
/// different bytes.
pub fn hash_part(hash: &mut Sha256, part: &[u8]) {
    hash.update((part.len() as u64).to_le_bytes());
    hash.update(part);
}

/// Returns the SHA-256 of bytes, as hexadecimal digits.
pub fn hexadecimal_hash(bytes: &[u8]) -> String {
    hexadecimal(&Sha256::digest(bytes))
}

/// Returns bytes as hexadecimal digits.
pub fn hexadecimal(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
