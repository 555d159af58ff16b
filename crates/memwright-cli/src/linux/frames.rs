//! Parses the frames that the guest's init process writes.

use memwright_linux_abi::channel::Outcome;

use crate::count::said::Said;
use crate::model::hash::hexadecimal;

/// The empty frame with which the init process ends its output if it cannot unpack the program.
pub const NOT_UNPACKED: &[u8] = b"f\0\0\0\0";

/// Parses the output of the init process; `None` if a part of it is missing.
pub fn parse_frames(mut bytes: &[u8]) -> Option<Said> {
    let (mut output, mut errors, mut warnings) = (Vec::new(), Vec::new(), Vec::new());
    let (mut notes, mut not_found, mut maps) = (Vec::new(), Vec::new(), Vec::new());
    let (mut refusal, mut status) = (None, None);
    while let Some((kind, rest)) = bytes.split_first() {
        let (length, rest) = rest.split_first_chunk::<4>()?;
        let (body, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        let number = || Some(i32::from_le_bytes(body.try_into().ok()?));
        match kind {
            b'o' => output.extend_from_slice(body),
            b'e' => errors.extend_from_slice(body),
            b'w' => warnings.extend_from_slice(body),
            b'm' => not_found.push(body.to_vec()),
            b'p' => maps.push(body.to_vec()),
            b'b' => notes.extend_from_slice(body),
            // The guest's clock at the save point, at which a snapshot can be taken. This function does not use the
            // clock.
            b'r' => {}
            b'n' => refusal = Some(number()?),
            b'x' => status = Some(number()?),
            _ => return None,
        }
        bytes = rest;
    }
    // A wait status of wait(2): the signal is in the low seven bits; if it is 0, the exit code is in bits 8 to 15.
    let status = status?;
    let outcome = match (refusal, status & 0x7f) {
        (Some(number), _) => Outcome::NotStarted(number),
        (None, 0) => Outcome::Exited(status >> 8 & 0xff),
        (None, signal) => Outcome::Killed(signal),
    };
    Some(Said {
        output,
        errors,
        warnings,
        not_found,
        maps,
        build_id: build_id(&notes),
        outcome,
        triple_fault: false,
        counted: None,
        profile: None,
    })
}

/// Returns the build ID from the notes of an ELF file (owner GNU, type 3).
fn build_id(mut notes: &[u8]) -> Option<String> {
    let whole = |length: u32| Some(usize::try_from(length).ok()?.next_multiple_of(4));
    loop {
        let (header, rest) = notes.split_first_chunk::<12>()?;
        let word = |at: usize| Some(u32::from_le_bytes(header[at..at + 4].try_into().ok()?));
        let (name, rest) = rest.split_at_checked(whole(word(0)?)?)?;
        let (bytes, rest) = rest.split_at_checked(whole(word(4)?)?)?;
        if name == b"GNU\0" && word(8)? == 3 {
            return Some(hexadecimal(bytes));
        }
        notes = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![kind];
        bytes.extend_from_slice(&(body.len() as u32).to_le_bytes());
        bytes.extend_from_slice(body);
        bytes
    }

    #[test]
    fn frames_parse() {
        let parts = [
            frame(b'r', &[0; 8]),
            frame(b'o', b"one "),
            frame(b'o', b"two"),
            frame(b'e', b"error"),
            frame(b'w', b"no swap\n"),
            frame(b'm', b"/etc/one"),
            frame(b'm', b"/two"),
            frame(b'p', b"1 2 sh\n"),
            frame(b'b', b"\x04\0\0\0\x05\0\0\0\x06\0\0\0Xen\0linux\0\0\0"),
            frame(b'b', b"\x04\0\0\0\x04\0\0\0\x03\0\0\0GNU\0\x01\xab\0\x10"),
            frame(b'x', &[0, 7, 0, 0]),
        ];
        let bytes = parts.concat();
        let said = parse_frames(&bytes).unwrap();
        assert_eq!(
            (&*said.output, &*said.errors),
            (&b"one two"[..], &b"error"[..])
        );
        assert_eq!(
            (&*said.warnings, said.outcome),
            (&b"no swap\n"[..], Outcome::Exited(7))
        );
        assert_eq!(said.not_found, [&b"/etc/one"[..], b"/two"]);
        assert_eq!(said.maps, [b"1 2 sh\n"]);
        assert_eq!(said.build_id.as_deref(), Some("01ab0010"));
        for length in 0..bytes.len() {
            assert_eq!(parse_frames(&bytes[..length]), None, "cut at {length}");
        }
        assert_eq!(parse_frames(b"SeaBIOS"), None);
    }

    #[test]
    fn wait_statuses_are_outcomes() {
        for (refusal, status, expected) in [
            (None, 0x0000, Outcome::Exited(0)),
            (None, 0xff00, Outcome::Exited(255)),
            (None, 0x000b, Outcome::Killed(11)),
            (None, 0x008b, Outcome::Killed(11)),
            (Some(8), 0x7f00, Outcome::NotStarted(8)),
        ] {
            let mut bytes = Vec::new();
            if let Some(number) = refusal {
                bytes.extend(frame(b'n', &i32::to_le_bytes(number)));
            }
            bytes.extend(frame(b'x', &i32::to_le_bytes(status)));
            assert_eq!(parse_frames(&bytes).unwrap().outcome, expected);
        }
    }
}
