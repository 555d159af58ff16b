//! Tests regions with several passes, and regions with names.

mod kept;
mod skipped;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use kept::has_kernel;
use serde_json::Value;
use tempfile::TempDir;

const KERNEL: &str = "debian:trixie";

/// A program whose region 1 has one pass for each number of a list, and writes that number of new pages in the pass.
/// Region 2 has one pass.
const PASSES: &str = r#"
#include <sys/mman.h>
#include "mark.h"
#ifdef NAMED
MARK_NAME(1, "growing");
MARK_NAME(2, "once");
#endif
static const int list[] = { LIST };
int main(void)
{
	enum { SIZE = 64 * 4096, PASSES = sizeof list / sizeof *list };
	volatile char *memory = mmap(0, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int pages[PASSES];
	for (int pass = 0; pass < PASSES; pass++)
		pages[pass] = list[pass];
	MARK_BEGIN(2);
	MARK_END(2);
	for (int pass = 0; pass < PASSES; pass++) {
		MARK_BEGIN(1);
		for (int page = 0; page < pages[pass]; page++, memory += 4096)
			*memory = 1;
		MARK_END(1);
	}
	return 0;
}
"#;

fn memwright(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_memwright"));
    command.args(arguments).stdin(Stdio::null());
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns a text with single spaces between words.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Compiles source files, each of which has a name and a text, to a program. Returns `None` if the compiler is not
/// installed.
fn compiled(
    folder: &TempDir,
    compiler: &str,
    sources: &[(&str, &str)],
    options: &[&str],
    name: &str,
) -> Option<PathBuf> {
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include/memwright");
    let program = folder.path().join(name);
    let mut command = Command::new(compiler);
    command.args([
        "-O2",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-Wl,--build-id=none",
        "-I",
    ]);
    command.arg(include).args(options).arg("-o").arg(&program);
    for (name, source) in sources {
        let path = folder.path().join(name);
        fs::write(&path, source).unwrap();
        command.arg(path);
    }
    let Ok(output) = command.output() else {
        skipped::skipped(&format!("no {compiler}"));
        return None;
    };
    assert!(
        output.status.success(),
        "{compiler}: {}",
        text(&output.stderr)
    );
    Some(program)
}

/// Builds the program [`PASSES`] with the list of numbers `list`.
fn passing(folder: &TempDir, name: &str, list: &str, options: &[&str]) -> String {
    let list = format!("-DLIST={list}");
    let options = [&["-static", &list], options].concat();
    let program = compiled(folder, "gcc", &[("main.c", PASSES)], &options, name).unwrap();
    program.to_str().unwrap().to_owned()
}

/// Returns the write faults of a region: the sum of all passes, the first pass, the minimum, the median and the
/// maximum.
fn write_faults(region: &Value) -> [u64; 5] {
    let of = |counts: &Value| counts["user_faults"]["write"].as_u64().unwrap();
    let each = ["first", "min", "median", "max"].map(|name| of(&region["each"][name]));
    [of(&region["counts"]), each[0], each[1], each[2], each[3]]
}

#[test]
fn passes_have_their_first_least_median_and_most() {
    if !has_kernel(KERNEL) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = passing(&folder, "program", "2,5,1,6,4,3", &["-DNAMED"]);
    let json = folder.path().join("json");
    let file = json.to_str().unwrap();
    let output = memwright(&[
        "run", "--full", "--kernel", KERNEL, "--json", file, &program,
    ]);
    let account = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{account}");
    let document: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    assert_eq!(document["repeats"], true, "{document}");
    let region = &document["regions"][0];
    // The median of six values is the lower of the two middle ones.
    assert_eq!(write_faults(region), [21, 2, 1, 3, 6], "{region}");
    assert_eq!(
        (&region["passes"], &region["name"]),
        (&6.into(), &"growing".into())
    );
    let once = &document["regions"][1];
    assert_eq!(
        (&once["passes"], &once["name"]),
        (&1.into(), &"once".into())
    );
    assert!(once.get("each").is_none(), "{once}");
    for expected in [
        "region 1 (growing), passed 6 times debian:trixie first min median max",
        "user, not present, write 21 2 1 3 6",
        "region 2 (once)",
        "region 1 (growing): the counts are the sum of 6 passes",
    ] {
        assert!(words(&account).contains(expected), "{expected}: {account}");
    }
    check_formats(file);
    check_limits(&program);
}

/// Checks the reports of a document with several passes of a region.
fn check_formats(file: &str) {
    // Each format is rendered from the document alone. The rows are selected by the region's number and by its name.
    for (format, row, expected) in [
        (
            "--csv",
            "region.1.each.*.user_faults.write",
            "region.1.each.median.user_faults.write,\"region 1 (growing), passed 6 times\",Page faults,\"user, not present, write, median of a pass\",faults,debian:trixie,3",
        ),
        (
            "--md",
            "region.growing.*user_faults.write",
            "| Page faults: user, not present, write | 21 | 2 | 1 | 3 | 6 |",
        ),
        (
            "--mail",
            "region.growing.*user_faults.write",
            "user, not present, write 21 2 1 3 6",
        ),
        (
            "--html",
            "region.growing.each.max.user_faults.write",
            "user, not present, write, max of a pass</td><td data-of=\"debian:trixie\">6</td>",
        ),
    ] {
        let output = memwright(&["report", file, "--rows", row, format, "-"]);
        let said = text(&output.stdout);
        assert!(
            words(&said).contains(expected),
            "{format}: {said}{}",
            text(&output.stderr)
        );
    }
    let output = memwright(&["report", file, "--rows", "region.growin.invlpg"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).contains("there is no region growin; the program names growing, once")
    );
}

/// Checks limits on the statistics of passes.
fn check_limits(program: &str) {
    for (limits, code, said) in [
        (
            &[
                "region.growing.each.max.user_faults.write=6",
                "region.1.each.first.user_faults.write=2",
            ][..],
            0,
            "good: region.growing.each.max.user_faults.write: 6, at most 6",
        ),
        (
            &["region.growing.each.max.user_faults.write=5"],
            1,
            "BAD: region.growing.each.max.user_faults.write: 6, at most 5",
        ),
        (
            &["region.2.each.max.user_faults.write=0"],
            1,
            "none: region.2.each.max.user_faults.write: no such row",
        ),
        (
            &["region.growin.each.max.user_faults.write=5"],
            2,
            "there is no region growin; the program names growing, once",
        ),
        (
            &["region.growing.each.mean.user_faults.write=5"],
            2,
            "close names: region.1.each.",
        ),
    ] {
        let mut arguments = vec!["check", "--no-verify", "--kernel", KERNEL];
        arguments.extend(limits.iter().flat_map(|limit| ["--limit", limit]));
        arguments.push(program);
        let output = memwright(&arguments);
        let all = [output.stdout, output.stderr].concat();
        assert_eq!(
            output.status.code(),
            Some(code),
            "{limits:?}: {}",
            text(&all)
        );
        assert!(text(&all).contains(said), "{limits:?}: {}", text(&all));
    }
}

/// Two programs have equal sums, but the maximum of their passes differs. One row must report this difference.
#[test]
fn one_pass_that_differs_is_a_difference() {
    if !has_kernel(KERNEL) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = passing(&folder, "one", "2,5,1,6,4,3", &["-DNAMED"]);
    let other = passing(&folder, "two", "2,5,1,7,3,3", &["-DNAMED"]);
    let column = format!("other={KERNEL},program={other}");
    let rows = [
        "--rows",
        "region.growing.*user_faults.write",
        "--rows",
        "region.1.passes",
    ];
    let first = [
        "compare",
        "--no-verify",
        "--kernel",
        KERNEL,
        "--kernel",
        &column,
    ];
    let output = memwright(&[&first[..], &rows, &[&program]].concat());
    let said = text(&output.stdout);
    assert_eq!(
        output.status.code(),
        Some(1),
        "{said}{}",
        text(&output.stderr)
    );
    for expected in [
        "1 of 6 rows changed",
        "region 1 (growing): user, not present, write, max of a pass faults 6 7 +1 +16.7 %",
    ] {
        assert!(words(&said).contains(expected), "{expected}: {said}");
    }
    assert!(!said.contains("median"), "{said}");
}

/// If two programs give a region different names, the table reports the difference. A name that two regions have cannot
/// select rows.
#[test]
fn names_that_differ_are_said() {
    if !has_kernel(KERNEL) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = passing(&folder, "one", "1,2", &["-DNAMED"]);
    let turned = PASSES
        .replace("MARK_NAME(1", "MARK_NAME(3")
        .replace("MARK_NAME(2", "MARK_NAME(1")
        .replace("MARK_NAME(3", "MARK_NAME(2");
    let options = ["-static", "-DLIST=1,2", "-DNAMED"];
    let other = compiled(&folder, "gcc", &[("two.c", &turned)], &options, "two").unwrap();
    let column = format!("other={KERNEL},program={}", other.display());
    let first = [
        "compare",
        "--no-verify",
        "--kernel",
        KERNEL,
        "--kernel",
        &column,
    ];
    for (rows, said) in [
        (
            "region.1.passes",
            "the names of region 1 differ: debian:trixie: growing, other: once",
        ),
        (
            "region.growing.passes",
            "the programs call regions 1 and 2 growing: give a number",
        ),
    ] {
        let output = memwright(&[&first[..], &["--rows", rows, &program]].concat());
        let all = text(&[output.stdout, output.stderr].concat());
        assert!(all.contains(said), "{all}");
    }
}

/// A region has the same counts whether its program is compiled with or without names, provided that the path of the
/// program is the same. The counts of the complete run can differ, because they include the exec, and the executables
/// differ.
#[test]
fn names_change_no_count_of_a_region() {
    if !has_kernel(KERNEL) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let files =
        ["plain", "named"].map(|name| folder.path().join(name).to_str().unwrap().to_owned());
    for (options, file) in [&[][..], &["-DNAMED"]].into_iter().zip(&files) {
        let program = passing(&folder, "program", "1,2", options);
        let output = memwright(&[
            "run",
            "--no-verify",
            "--kernel",
            KERNEL,
            "--json",
            file,
            &program,
        ]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    }
    let output = memwright(&["report", "--rows", "region.*", &files[0], &files[1]]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(
        said.contains("the names of region 1 differ: plain: no name, named: growing"),
        "{said}"
    );
}

/// An error in a program's names is reported in one line, and none of the names is used.
#[test]
fn wrong_names_are_said_and_not_used() {
    if !has_kernel(KERNEL) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let entry = |bytes: &str| {
        format!("__asm__(\".pushsection .memwright.regions\\n{bytes}\\n.popsection\");")
    };
    for (names, said) in [
        (
            "MARK_NAME(1, \"a=b\");".to_owned(),
            "the name of region 1, \"a=b\", is not",
        ),
        (
            "MARK_NAME(1, \"a\\033b\\n\");".to_owned(),
            "the name of region 1, \"a\\x1bb\\n\", is not",
        ),
        (
            "MARK_NAME(1, \"a\");\nMARK_NAME(1, \"b\");".to_owned(),
            "it calls region 1 a and b",
        ),
        (
            "MARK_NAME(1, \"a\");\nMARK_NAME(2, \"a\");".to_owned(),
            "it calls regions 1 and 2 a",
        ),
        (
            "MARK_NAME(32767, \"a\");".to_owned(),
            "it names region 32767, and regions are 0 to 32766",
        ),
        (
            entry(".long 1\\n.fill 1048576, 1, 120\\n.byte 0"),
            "the name of region 1, \"xxxxxxxxxxxxxxxx",
        ),
        (entry(".long 1\\n.ascii \\\"a\\\""), "ends inside a name"),
        (
            entry(".long 1\\n.asciz \\\"a\\\"\\n.byte 2"),
            "ends inside a name",
        ),
    ] {
        let source = format!("#include \"mark.h\"\n{names}\nint main(void)\n{{\n\treturn 0;\n}}\n");
        let program = compiled(
            &folder,
            "gcc",
            &[("wrong.c", &source)],
            &["-static"],
            "wrong",
        )
        .unwrap();
        let program = program.to_str().unwrap();
        let output = memwright(&["run", "--kernel", KERNEL, "--dry-run", program]);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{error}");
        let lines: Vec<&str> = error
            .lines()
            .filter(|line| line.contains("its regions have numbers alone"))
            .collect();
        assert!(
            lines.len() == 1 && lines[0].contains(said) && lines[0].len() < 400,
            "{said}: {error}"
        );
        let limit = [
            "check",
            "--limit",
            "region.a.invlpg=0",
            "--kernel",
            KERNEL,
            program,
        ];
        let output = memwright(&limit);
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
        assert!(
            text(&output.stderr).contains(said),
            "{said}: {}",
            text(&output.stderr)
        );
    }
}

/// `--region` accepts the name of a region. An unknown name is rejected before a program runs.
#[test]
fn a_profile_is_of_a_region_by_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let program = passing(&folder, "program", "1,2", &["-DNAMED"]);
    let options = [
        "run",
        "--no-verify",
        "--kernel",
        KERNEL,
        "--functions",
        "--region",
    ];
    if !has_kernel(KERNEL) {
        return;
    }
    for (region, code, said) in [
        (
            "growing",
            0,
            "Instructions of the kernel by function, region 1 (growing)",
        ),
        (
            "shrinking",
            125,
            "--region: there is no region shrinking; the program names growing, once",
        ),
        ("a,b", 125, "expected a number from 0 to 32766, or a name"),
    ] {
        let output = memwright(&[&options[..], &[region, &program]].concat());
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{error}");
        assert!(error.contains(said), "{error}");
    }
}

/// Returns the concatenated contents of the segments that the loader maps.
fn loaded(program: &Path) -> Vec<u8> {
    let image = program.with_extension("loaded");
    let status = Command::new("objcopy")
        .args(["-O", "binary"])
        .args([program, &image])
        .status();
    assert!(status.unwrap().success());
    fs::read(image).unwrap()
}

/// Returns the contents of a section of a program; empty if the program has no such section.
fn section(program: &Path, name: &str) -> Vec<u8> {
    let (file, copy) = (
        program.with_extension("section"),
        program.with_extension("copy"),
    );
    let _ = fs::remove_file(&file);
    let dump = format!("{name}={}", file.display());
    let arguments = ["--dump-section", &dump];
    // If the section does not exist, objcopy prints an error and writes no file.
    Command::new("objcopy")
        .args(arguments)
        .args([program, &copy])
        .output()
        .unwrap();
    fs::read(file).unwrap_or_default()
}

/// Returns the entries of the section that contains the names. The entries are sorted by number, because link-time
/// optimisation changes their order.
fn entries(mut section: &[u8]) -> Vec<(u32, String)> {
    let mut found = Vec::new();
    while let Some((number, rest)) = section.split_first_chunk() {
        let end = rest.iter().position(|byte| *byte == 0).unwrap();
        found.push((u32::from_le_bytes(*number), text(&rest[..end])));
        section = &rest[end + 1..];
    }
    assert_eq!(section, b"");
    found.sort();
    found
}

/// Naming regions changes no byte that is loaded. This is checked in C and in C++, at file scope and in a function, and
/// with several source files.
#[test]
fn names_change_nothing_that_is_loaded() {
    let header = "#include \"mark.h\"\n#ifdef NAMED\nMARK_NAME(1, \"shared\");\n#endif\n";
    let first = format!(
        "{header}#define NUMBER 2\n#ifdef NAMED\nMARK_NAME(NUMBER, \"first_file\");\n#endif\n\
         #ifdef __cplusplus\nextern \"C\"\n#endif\nint other(int);\n\
         int main(void)\n{{\n\tMARK_BEGIN(NUMBER);\n\tint got = other(1);\n\tMARK_END(NUMBER);\n\treturn got;\n}}\n"
    );
    let second = format!(
        "{header}#ifdef __cplusplus\nextern \"C\"\n#endif\nint other(int value);\nint other(int value)\n{{\n\
         #ifdef NAMED\n\tMARK_NAME(3, \"second-file\");\n#endif\n\tMARK_BEGIN(3);\n\tMARK_END(3);\n\treturn value;\n}}\n"
    );
    let expected = [
        (1, "shared"),
        (1, "shared"),
        (2, "first_file"),
        (3, "second-file"),
    ];
    let expected = expected.map(|(number, name)| (number, name.to_owned()));
    for (compiler, ending, options) in [
        ("gcc", "c", &[][..]),
        ("gcc", "c", &["-std=c99", "-pedantic", "-static"]),
        (
            "gcc",
            "c",
            &["-ffunction-sections", "-Wl,--gc-sections", "-flto", "-s"],
        ),
        ("g++", "cc", &["-pedantic"]),
        ("musl-gcc", "c", &["-static"]),
        ("clang", "c", &[]),
        ("clang++", "cc", &[]),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let [one, two] = ["first", "second"].map(|name| format!("{name}.{ending}"));
        let sources = [(&*one, &*first), (&*two, &*second)];
        let build = |more: &[&str], name: &str| {
            compiled(&folder, compiler, &sources, &[options, more].concat(), name)
        };
        let Some(plain) = build(&[], "plain") else {
            continue;
        };
        let named = build(&["-DNAMED"], "named").unwrap();
        let name = format!("{compiler} {options:?}");
        assert_eq!(section(&plain, ".memwright.regions"), b"", "{name}");
        assert_eq!(
            entries(&section(&named, ".memwright.regions")),
            expected,
            "{name}"
        );
        assert!(!loaded(&plain).is_empty() && !section(&plain, ".text").is_empty());
        assert_eq!(loaded(&plain), loaded(&named), "{name}");
        assert_eq!(section(&plain, ".text"), section(&named, ".text"), "{name}");
    }
}
