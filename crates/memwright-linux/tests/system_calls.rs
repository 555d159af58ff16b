//! Generates `docs/system-calls.md` from the table of system calls and the stubs of `/proc` and `/sys`.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]

use memwright_linux::syscall::{
    call::Status,
    table::{CALLS, write_listing},
};
use memwright_linux_procfs::procfs::{all_stubs, stub::Kind};
use std::{env, fmt::Write, fs, path::Path};

/// Returns the text of the page, generated from the table of system calls.
fn document() -> String {
    let names = |status: Status| {
        let calls = CALLS.iter().filter(|call| call.status == status);
        calls
            .map(|call| format!("`{}`", call.name))
            .collect::<Vec<_>>()
    };
    let (real, missing) = (names(Status::Real), names(Status::Missing));
    let mut listing = String::new();
    write_listing(&mut listing).expect("a string accepts everything");
    let mut text = String::from("# System calls\n\nThe system calls of Linux 7.2 on x86-64. ");
    text.push_str("This page is generated from the table that drives dispatch, `--strace`\n");
    text.push_str(
        "and the account (`crates/memwright-linux/src/syscall/table/`); a test compares the two.\n",
    );
    let sections = [
        (
            "Served",
            "They do what Linux does, within the limits of [semantics.md](semantics.md).",
            real,
        ),
        (
            "Missing",
            "They return `ENOSYS`; the account counts each.",
            missing,
        ),
    ];
    for (title, meaning, names) in sections {
        write!(text, "\n## {title} ({})\n\n{meaning}\n\n", names.len()).expect("a string");
        for line in names.chunks(8) {
            let end = if line.as_ptr_range().end == names.as_ptr_range().end {
                "."
            } else {
                ","
            };
            writeln!(text, "{}{end}", line.join(", ")).expect("a string");
        }
    }
    text.push_str("\n## The table\n\nNumber, name, state and arguments (`in:N` and `out:N` are ");
    text.push_str(
        "N bytes read and written,\n`inbuffer:I` is a buffer whose length is argument I).\n\n```text\n",
    );
    for line in listing.lines().filter(|line| !line.ends_with(" missing")) {
        text.push_str(line);
        text.push('\n');
    }
    text.push_str("```\n");
    write_stubs(&mut text);
    text
}

/// Writes the table of values under `/proc` and `/sys` that do not reflect kernel state.
fn write_stubs(text: &mut String) {
    text.push_str(
        "\n## Stubs in /proc and /sys\n\nThese values do not reflect kernel state. Every other ",
    );
    text.push_str("value under `/proc` and `/sys` does. The\ntable is generated from ");
    text.push_str("declarations next to the code that writes the files (`crates/memwright-linux-procfs/src/procfs`).\n");
    text.push_str("\n| File | Field | Value | Reason |\n|---|---|---|---|\n");
    for stub in all_stubs() {
        let value = match stub.kind {
            Kind::Number(_) | Kind::Text(_) if stub.to_string().is_empty() => "empty".to_owned(),
            Kind::Number(_) | Kind::Text(_) => format!("`{stub}`"),
            Kind::Copy(field) => format!("value of `{field}`"),
            Kind::Unused => "the last value written".to_owned(),
        };
        let field = match stub.field {
            "" => String::new(),
            field => format!("`{field}`"),
        };
        let (file, reason) = (stub.file, stub.reason);
        writeln!(text, "| `{file}` | {field} | {value} | {reason} |").expect("a string");
    }
}

/// Checks that `docs/system-calls.md` is equal to the generated text. `cargo xtask docs` writes the page.
#[test]
fn the_page_is_that_of_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/system-calls.md");
    if env::var_os("MEMWRIGHT_UPDATE_DOCS").is_some() {
        fs::write(&path, document()).expect("docs/ can be written");
    }
    let page = fs::read_to_string(&path).expect("docs/system-calls.md is there");
    assert!(
        page == document(),
        "docs/system-calls.md is not current (cargo xtask docs)"
    );
}
