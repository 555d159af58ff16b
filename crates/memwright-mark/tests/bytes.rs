//! Tests the bytes of the marks in a compiled program.
#![cfg(target_arch = "x86_64")]

memwright_mark::name!(0x123, "marked");
memwright_mark::name!(NUMBER, "by-a_constant");

const NUMBER: u16 = 2;

/// Returns how often the mark with this code occurs in this test's own executable.
fn marks(code: u16) -> usize {
    let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    let [low, high] = code.to_le_bytes();
    let displacement = [low, high, 0x57, 0x4d];
    let places = program
        .windows(7)
        .filter(|bytes| bytes[..3] == [0x0f, 0x1f, 0x80]);
    places.filter(|bytes| bytes[3..] == displacement).count()
}

#[test]
fn marks_are_those_of_the_header() {
    memwright_mark::begin::<0x123>();
    memwright_mark::end::<0x123>();
    assert_eq!((marks(0x123 << 1), marks(0x123 << 1 | 1)), (1, 1));
    assert_eq!(marks(0x124 << 1), 0);
}

#[test]
fn names_are_those_of_the_header() {
    let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    let holds = |entry: &[u8]| program.windows(entry.len()).any(|bytes| bytes == entry);
    assert!(holds(b"\x23\x01\0\0marked\0"));
    assert!(holds(b"\x02\0\0\0by-a_constant\0"));
}
