//! The archive with the initial files of the simulated machine.

use crate::program::{CODE, DATA, DATA_BYTES, NAME_ROOM, NAMES};

const PAGE: u64 = 4096;

/// Builds a static ELF program for x86-64. It has a code page, which is mapped but never executed, and data, which
/// begins with the slots of [`NAMES`].
pub fn own_program() -> Vec<u8> {
    let mut data = Vec::new();
    for name in NAMES {
        data.extend_from_slice(name.as_bytes());
        data.resize(data.len().next_multiple_of(NAME_ROOM as usize), 0);
        if name.is_empty() {
            data.extend([0; NAME_ROOM as usize]);
        }
    }
    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    let half = |file: &mut Vec<u8>, number: u16| file.extend(number.to_le_bytes());
    let word = |file: &mut Vec<u8>, number: u32| file.extend(number.to_le_bytes());
    let long = |file: &mut Vec<u8>, number: u64| file.extend(number.to_le_bytes());
    // The ELF header: ET_EXEC for EM_X86_64, version 1, the entry, the offset of the program headers, and no sections.
    half(&mut file, 2);
    half(&mut file, 62);
    word(&mut file, 1);
    for number in [CODE, 64, 0] {
        long(&mut file, number);
    }
    word(&mut file, 0);
    for number in [64, 56, 2, 0, 0, 0] {
        half(&mut file, number);
    }
    // PT_LOAD: the rights, then the offset, the address twice, the sizes in the file and in memory, and the alignment.
    let stored = data.len() as u64;
    for (rights, offset, address, bytes, room) in [
        (5, 0, CODE, PAGE, PAGE),
        (6, PAGE, DATA, stored, DATA_BYTES),
    ] {
        word(&mut file, 1);
        word(&mut file, rights);
        for number in [offset, address, address, bytes, room, PAGE] {
            long(&mut file, number);
        }
    }
    file.resize(PAGE as usize, 0);
    file.extend(data);
    file
}

/// Builds a cpio archive (`newc`) that contains the folder `/tmp` and the program as `/program`.
pub fn archive(program: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, mode, data) in [
        ("tmp", 0o41777, &[][..]),
        ("program", 0o100_755, program),
        ("TRAILER!!!", 0, &[]),
    ] {
        let numbers = [
            bytes.len(),
            mode,
            0,
            0,
            1,
            0,
            data.len(),
            0,
            0,
            0,
            0,
            name.len() + 1,
            0,
        ];
        bytes.extend_from_slice(b"070701");
        for number in numbers {
            bytes.extend_from_slice(format!("{number:08x}").as_bytes());
        }
        bytes.extend_from_slice(name.as_bytes());
        bytes.push(0);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes.extend_from_slice(data);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    }
    bytes
}
