//! `docs/system-calls.md` says what the table of system calls and the stubs of `/proc` and `/sys` say.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]

use memwright_linux::{
    fs::procfs::stub::{self, Kind},
    syscall::table::{CALLS, Status, write_listing},
};
use std::{env, fmt::Write, fs, path::Path};

/// The document for the table as it is.
fn document() -> String {
    let names = |status: Status| {
        let calls = CALLS.iter().filter(|call| call.status == status);
        calls
            .map(|call| format!("`{}`", call.name))
            .collect::<Vec<_>>()
    };
    let (real, stubs, missing) = (
        names(Status::Real),
        names(Status::Stub),
        names(Status::Missing),
    );
    let mut listing = String::new();
    write_listing(&mut listing).expect("a string accepts everything");
    let mut text = String::from("# System calls\n\nThe calls of x86-64 Linux 7.2, from the one ");
    text.push_str("table that drives dispatch, `--strace` and the account\n");
    text.push_str(
        "(`crates/memwright-linux/src/syscall/table/`); a test keeps this page equal to it.\n",
    );
    let sections = [
        (
            "Served",
            "They do what Linux does, within the limits of [semantics.md](semantics.md).",
            real,
        ),
        (
            "Without effect",
            "They return success and do nothing; the account counts each.",
            stubs,
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
        "N bytes read and written, `inbuffer:I` as many\nas argument I says).\n\n```text\n",
    );
    for line in listing.lines().filter(|line| !line.ends_with(" missing")) {
        text.push_str(line);
        text.push('\n');
    }
    text.push_str("```\n");
    write_stubs(&mut text);
    text
}

/// The table of values under `/proc` and `/sys` that no state stands behind.
fn write_stubs(text: &mut String) {
    text.push_str(
        "\n## Stubs in /proc and /sys\n\nNo state stands behind these values. Every other ",
    );
    text.push_str(
        "value under `/proc` and `/sys` is that of what it names. The\ntable is generated from ",
    );
    text.push_str("declarations beside the code that writes the files (`crates/memwright-linux/src/fs/procfs`).\n");
    text.push_str("\n| File | Field | Value | Reason |\n|---|---|---|---|\n");
    for stub in stub::all() {
        let value = match stub.kind {
            Kind::Number(_) | Kind::Text(_) if stub.to_string().is_empty() => "empty".to_owned(),
            Kind::Number(_) | Kind::Text(_) => format!("`{stub}`"),
            Kind::Copy(field) => format!("that of `{field}`"),
            Kind::Unused => "what was written last".to_owned(),
        };
        let field = match stub.field {
            "" => String::new(),
            field => format!("`{field}`"),
        };
        let (file, reason) = (stub.file, stub.reason);
        writeln!(text, "| `{file}` | {field} | {value} | {reason} |").expect("a string");
    }
}

/// `MEMWRIGHT_WRITE_DOCS=1 cargo test -p memwright-linux --test system_calls` writes the page.
#[test]
fn the_page_is_that_of_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/system-calls.md");
    if env::var_os("MEMWRIGHT_WRITE_DOCS").is_some() {
        fs::write(&path, document()).expect("docs/ can be written");
    }
    let page = fs::read_to_string(&path).expect("docs/system-calls.md is there");
    assert!(
        page == document(),
        "docs/system-calls.md is old: see this test's comment"
    );
}
