//! Tests that one more instruction in the path of a page fault is reported as exactly one more instruction per page
//! fault.
//!
//! The kernel is Debian's, uncompressed. Every call of its page-fault handler is redirected to a jump in the padding
//! before the handler; nothing else in the image changes.

mod skipped;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// The function that the page-fault entry calls (arch/x86/mm/fault.c).
const HANDLER: &str = "exc_page_fault";
/// The number of bytes of padding before every function (CONFIG_FUNCTION_PADDING_BYTES in Debian's configuration). The
/// padding consists of NOPs.
const PADDING: usize = 16;

/// A program that writes new pages in regions 1 to 8. Timer ticks occur in some of the regions. The two kernels do not
/// have the ticks in the same regions. If a symbol is given as an argument, the program first prints the symbol's
/// address.
const PROGRAM: &str = r#"
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include "mark.h"
enum { PAGES = 32, SIZE = PAGES * 4096 };
static char *memory;
static void touch(void)
{
	for (int i = 0; i < SIZE; i += 4096)
		((volatile char *)memory)[i] = 1;
	memory += SIZE;
}
int main(int count, char **arguments)
{
	char line[512], name[256], kind;
	unsigned long address;
	FILE *symbols = count > 1 ? fopen("/proc/kallsyms", "r") : NULL;
	while (symbols && fgets(line, sizeof line, symbols))
		if (sscanf(line, "%lx %c %255s", &address, &kind, name) == 3 && strcmp(name, arguments[1]) == 0)
			printf("%lx\n", address);
	memory = mmap(0, 8 * SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	MARK_BEGIN(1); touch(); MARK_END(1);
	MARK_BEGIN(2); touch(); MARK_END(2);
	MARK_BEGIN(3); touch(); MARK_END(3);
	MARK_BEGIN(4); touch(); MARK_END(4);
	MARK_BEGIN(5); touch(); MARK_END(5);
	MARK_BEGIN(6); touch(); MARK_END(6);
	MARK_BEGIN(7); touch(); MARK_END(7);
	MARK_BEGIN(8); touch(); MARK_END(8);
	return 0;
}
"#;

fn memwright(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_memwright"));
    command.args(arguments).stdin(Stdio::null());
    command
}

fn built(folder: &TempDir) -> PathBuf {
    let source = folder.path().join("main.c");
    fs::write(&source, PROGRAM).unwrap();
    let program = folder.path().join("program");
    let headers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include/memwright");
    let status = Command::new("gcc")
        .args(["-O1", "-static", "-I"])
        .arg(headers)
        .arg("-o")
        .args([&program, &source])
        .status();
    assert!(status.unwrap().success());
    program
}

fn word(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// Returns the uncompressed kernel in a bzImage (Documentation/arch/x86/boot.rst: `payload_offset`). If the
/// decompressor is missing, prints a message and returns `None`.
fn uncompressed(image: &[u8], folder: &TempDir) -> Option<Vec<u8>> {
    let start = (usize::from(image[0x1f1]) + 1) * 512 + word(image, 0x248);
    // The last four bytes of the payload contain the uncompressed size.
    let payload = &image[start..start + word(image, 0x24c) - 4];
    let tool = match payload {
        [0x28, 0xb5, ..] => "zstd",
        [0xfd, b'7', ..] => "xz",
        [0x02, 0x21, ..] => "lz4",
        [0x1f, 0x8b, ..] => "gzip",
        other => panic!("compressed in an unknown way: {:x?}", &other[..4]),
    };
    let packed = folder.path().join("packed");
    fs::write(&packed, payload).unwrap();
    let output = Command::new(tool)
        .arg("-dc")
        .stdin(fs::File::open(packed).unwrap())
        .output();
    match output {
        Ok(output) => Some(output.stdout),
        Err(error) => {
            skipped::skipped(&format!("{tool}: {error}"));
            None
        }
    }
}

/// Returns the first segment of an ELF file, which contains the code. The two values are the segment's virtual address
/// and its range in the file.
fn code(elf: &[u8]) -> (u64, std::ops::Range<usize>) {
    let first = long(elf, 32) as usize;
    let (address, place, size) = (
        long(elf, first + 16),
        long(elf, first + 8),
        long(elf, first + 32),
    );
    (address, place as usize..(place + size) as usize)
}

/// Redirects every call of the handler to the padding before the handler, and replaces the padding by a jump to the
/// handler.
fn lengthen(elf: &mut [u8], handler: u64) {
    let (address, place) = code(elf);
    let at = place.start + (handler - address) as usize;
    let padding = at - PADDING;
    assert!(
        elf[padding..at].iter().all(|byte| *byte == 0x90),
        "no padding"
    );
    let calls: Vec<usize> = (place.start..place.end - 5)
        .filter(|call| {
            let distance = word(elf, call + 1) as u32 as i32;
            elf[*call] == 0xe8 && (*call + 5).wrapping_add_signed(distance as isize) == at
        })
        .collect();
    assert!(!calls.is_empty());
    for call in calls {
        let distance = word(elf, call + 1) - PADDING;
        elf[call + 1..call + 5].copy_from_slice(&(distance as u32).to_le_bytes());
    }
    elf[padding] = 0xe9;
    elf[padding + 1..padding + 5].copy_from_slice(&(PADDING as u32 - 5).to_le_bytes());
}

/// Returns the number of page faults of all kinds, in user mode and in the kernel.
fn faults(counts: &Value) -> u64 {
    let both = ["user_faults", "kernel_faults"].map(|who| &counts[who]);
    let each = both
        .iter()
        .flat_map(|who| who.as_object().unwrap().values());
    each.map(|count| count.as_u64().unwrap()).sum()
}

#[test]
fn one_instruction_more_in_the_fault_path_is_one_for_each_fault() {
    let folder = tempfile::tempdir().unwrap();
    let line = memwright(&["run", "--kernel", "debian:trixie", "--dry-run", "/bin/true"]).output();
    let line = String::from_utf8(line.unwrap().stdout).unwrap();
    let mut words = line
        .split_whitespace()
        .skip_while(|word| *word != "-kernel");
    let Some(image) = words.nth(1) else {
        skipped::skipped("no kernel image: memwright kernels add debian:trixie");
        return;
    };
    let Some(mut kernel) = uncompressed(&fs::read(image).unwrap(), &folder) else {
        return;
    };
    let [before, after] = ["before", "after"].map(|name| folder.path().join(name));
    fs::write(&before, &kernel).unwrap();
    let program = built(&folder);
    let [program, before_image] = [&program, &before].map(|path| path.to_str().unwrap());
    let options = ["run", "--no-verify", "--no-count", "--kernel"];
    let words = [&options[..], &[before_image, program, HANDLER]].concat();
    let output = memwright(&words).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let text = String::from_utf8(output.stdout).unwrap();
    let handler = u64::from_str_radix(text.trim(), 16).expect(&said);
    lengthen(&mut kernel, handler);
    fs::write(&after, &kernel).unwrap();
    let json = folder.path().join("json");
    let kernels = [("before", &before), ("after", &after)];
    let kernels = kernels.map(|(name, path)| format!("{name}={}", path.display()));
    let mut words = vec!["compare", "--kernel", &kernels[0], "--kernel", &kernels[1]];
    words.extend(["--json", json.to_str().unwrap(), program]);
    let output = memwright(&words).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    let json: Value = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
    assert_eq!(
        (&json["differs"], &json["repeats"]),
        (&true.into(), &true.into()),
        "{said}"
    );
    let regions = |column: usize| json["columns"][column]["regions"].as_array().unwrap();
    let mut compared = 0;
    for (one, other) in regions(0).iter().zip(regions(1)) {
        let (one, other) = (&one["counts"], &other["counts"]);
        compared += 1;
        assert_eq!(faults(one), 32, "{said}");
        assert_eq!(faults(one), faults(other), "{said}");
        let instructions = |counts: &Value, of: &str| counts["instructions"][of].as_u64().unwrap();
        assert_eq!(
            instructions(one, "user"),
            instructions(other, "user"),
            "{said}"
        );
        let more = instructions(other, "kernel") - instructions(one, "kernel");
        assert_eq!(more, faults(one), "{said}");
    }
    assert_eq!(compared, 8, "{said}");
}
