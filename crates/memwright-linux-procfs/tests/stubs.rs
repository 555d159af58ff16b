//! Checks that the files under `/proc` and `/sys` write a constant only if a stub declares it.
//!
//! The test searches the sources for code that writes a constant without a declaration: a number in a written text, a
//! row with a literal number, a constant that is not a stub, and a whole line without a value.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]

use std::{
    env, fs,
    path::{Path, PathBuf},
};

/// Lines that are headings and contain no value.
const HEADINGS: &[&str] = &[
    r"Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n",
    r"[rollup]\n",
    "off: the policy locks=count takes lock statistics",
];

/// Numbers that belong to the format of a line and are not values: those of the line in `smaps_rollup` that represents
/// all areas, and the number of the single hierarchy of cgroups in version 2.
const FORMS: &[&str] = &[" ---p 00000000 00:00 0 ", "0::/"];

/// Returns the names of the stubs that a source declares.
fn declared(source: &str) -> Vec<String> {
    let lines = source
        .lines()
        .scan(false, |in_stubs, line| {
            *in_stubs = (*in_stubs || line.starts_with("stubs! {")) && line != "}";
            Some((*in_stubs, line))
        })
        .filter(|(in_stubs, _)| *in_stubs);
    let name = |(_, line): (bool, &str)| {
        let (name, rest) = line.trim_start().split_once(": ")?;
        (rest.starts_with('"') && is_constant(name)).then(|| name.to_owned())
    };
    lines.filter_map(name).collect()
}

/// Returns whether a name is written like that of a constant: in capital letters, digits and underscores.
fn is_constant(name: &str) -> bool {
    let begins = name.starts_with(|letter: char| letter.is_ascii_uppercase());
    let is_part =
        |letter: char| letter.is_ascii_uppercase() || letter.is_ascii_digit() || letter == '_';
    begins && name.len() > 1 && name.chars().all(is_part)
}

/// Returns the name of a constant that is not in `stubs`, if `line` writes such a constant in a text or as its whole
/// value.
fn other_constant(line: &str, stubs: &[String]) -> Option<String> {
    // A constant alone in its line is an argument of a `write!` or a row that rustfmt has wrapped.
    let alone = line.strip_suffix(',').filter(|name| is_constant(name));
    if let Some(name) = alone.filter(|name| !stubs.iter().any(|stub| stub == name)) {
        return Some(name.to_owned());
    }
    let is_row = line.starts_with("(\"");
    let writes = line.contains("write") || line.contains(".text(");
    if !writes && !is_row {
        return None;
    }
    let literals = literals(line);
    let named = literals.iter().flat_map(|(literal, _)| {
        let parts = literal.split('{').skip(1);
        parts.map(|part| part.split(['}', ':']).next().unwrap_or_default())
    });
    let values = literals.iter().filter_map(|(_, rest)| {
        let value = rest.strip_prefix(", ")?;
        value.split_once([')', ',']).map(|(value, _)| value.trim())
    });
    let mut names = named.chain(values);
    let other = names.find(|name| is_constant(name) && !stubs.iter().any(|stub| stub == name));
    other.map(str::to_owned)
}

/// Returns a description of what a line of source writes as a constant. Returns `None` if the line writes no constant.
fn undeclared(line: &str, stubs: &[String]) -> Option<String> {
    let line = line.trim_start();
    // A text in an arm of a `match` or `if` depends on a condition, so it is not a constant.
    let is_choice = line.contains("if ") || line.contains("=> ");
    if line.starts_with("//") || is_choice {
        return None;
    }
    if let Some(name) = other_constant(line, stubs) {
        return Some(format!("the constant {name}"));
    }
    let literals = literals(line);
    let is_row = literals.iter().any(|(_, rest)| {
        let rest = rest.strip_prefix(", ").unwrap_or_default();
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        digits > 0 && rest[digits..].starts_with(')')
    });
    if is_row {
        return Some("a row with a literal number".to_owned());
    }
    for (literal, _) in literals {
        if HEADINGS.contains(&literal) || FORMS.contains(&literal) {
            continue;
        }
        if let Some(number) = bare_number(literal) {
            return Some(format!("the number {number}"));
        }
        let words = literal.trim_end_matches(r"\n").trim();
        let is_first = |call: &str| line.contains(&format!("{call}\"{literal}\""));
        let is_line =
            is_first("writeln!(text, ") || is_first("write_str(") && literal.ends_with(r"\n");
        if is_line && !words.is_empty() && !literal.contains('{') {
            return Some(format!("the line {literal:?}"));
        }
    }
    None
}

/// Returns the string literals of a line, except byte strings, each with the text that follows it.
fn literals(line: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    let mut rest = line;
    while let Some((before, from)) = rest.split_once('"') {
        let mut escaped = false;
        let end = from.find(|letter| {
            let ends = letter == '"' && !escaped;
            escaped = letter == '\\' && !escaped;
            ends
        });
        // The literal continues in the next line.
        let Some(end) = end else {
            found.push((from, ""));
            break;
        };
        rest = &from[end + 1..];
        if !before.ends_with('b') {
            found.push((&from[..end], rest));
        }
    }
    found
}

/// Returns the first word of a literal that is a decimal number. A number in a literal never changes.
fn bare_number(literal: &str) -> Option<&str> {
    let separator = |letter: char| letter.is_whitespace() || letter == ':';
    let blanks = [r"\t", r"\n"];
    let parts = literal.split(separator);
    let words = parts.flat_map(|part| part.split(blanks[0]));
    let mut words = words.flat_map(|word| word.split(blanks[1]));
    words.find(|word| {
        let digits = word.trim_start_matches('-').trim_end_matches('\\');
        !digits.is_empty()
            && digits
                .bytes()
                .all(|byte| byte.is_ascii_digit() || byte == b'.')
            && digits.bytes().any(|byte| byte.is_ascii_digit())
    })
}

/// Returns the lines of a source that can write text: those outside imports, declarations of stubs, and tests.
fn code(source: &str) -> impl Iterator<Item = (usize, &str)> {
    let code = source
        .split("#[cfg(test)]\nmod tests")
        .next()
        .unwrap_or_default();
    let (mut in_stubs, mut in_imports) = (false, false);
    code.lines().enumerate().filter(move |(_, line)| {
        in_stubs |= line.starts_with("stubs! {");
        in_imports |= line.starts_with("use ") || line.starts_with("pub(super) use ");
        let is_code = !in_stubs && !in_imports;
        in_stubs &= *line != "}";
        in_imports &= !line.ends_with(';');
        is_code
    })
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("the sources are there") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else {
            found.push(path);
        }
    }
    found
}

#[test]
fn every_constant_is_declared() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/procfs");
    let (mut lines, mut names, mut wrong) = (0, 0, Vec::new());
    for path in sources(&folder) {
        let source = fs::read_to_string(&path).expect("a source is text");
        let stubs = declared(&source);
        names += stubs.len();
        for (index, line) in code(&source) {
            lines += 1;
            if let Some(what) = undeclared(line, &stubs) {
                wrong.push(format!("{}:{}: {what}", path.display(), index + 1));
            }
        }
    }
    assert!(lines > 3000, "{lines} lines were searched");
    assert!(names > 60, "{names} declarations were found");
    assert!(
        wrong.is_empty(),
        "declare a stub for each of\n{}",
        wrong.join("\n")
    );
}

#[test]
fn constants_are_found() {
    for (line, found) in [
        (r#"        ("Dirty", 0),"#, true),
        (r#"        ("Dirty", DIRTY.number()),"#, false),
        (r#"    text.write_str("procs_blocked 0\n")"#, true),
        (r#"    writeln!(text, "procs_blocked {BLOCKED}")"#, false),
        (r#"    write!(text, " 20 0 {threads}")?;"#, true),
        (r#"            "cpu MHz\t\t: 1000.000\n\"#, true),
        (r#"    text.write_str("domain\n")"#, true),
        (r#"    writeln!(text, "domain")"#, true),
        (r#"    // As "1" says."#, false),
        (r#"    write!(text, "tpgid -1 {name}")"#, true),
        (r#"    bytes == b"0""#, false),
        (r#"        ("hugepages-64kB", 0o555, Fixed(&SIZE)),"#, false),
        (r#"    writeln!(text, "procs_blocked {OTHER}")"#, true),
        (r#"    writeln!(text, "{}", OTHER)"#, true),
        (r#"        ("Dirty", OTHER),"#, true),
        ("            OTHER,", true),
        ("            DIRTY,", false),
        (r#"    writeln!(text, "{}", pages * OTHER)"#, false),
        (r#"    write!(text, "{start:08x}-{end:08x}")?;"#, false),
    ] {
        let stubs = ["DIRTY", "BLOCKED"].map(str::to_owned);
        assert_eq!(undeclared(line, &stubs).is_some(), found, "{line}");
    }
    let source = "use a::{\n    B,\n};\nstubs! {\n    A: \"/a\" \"b\" Number(0), \"C.\";\n}\nx\n#[cfg(test)]\nmod tests {\n y\n";
    assert_eq!(
        code(source).map(|(_, line)| line).collect::<Vec<_>>(),
        ["x"]
    );
    let source = "stubs! {\n    A_1: \"/a\" \"b\" Number(0), \"C.\";\n    BC: \"/b\" \"\" Unused,\n        \"D.\";\n}\n";
    assert_eq!(declared(source), ["A_1", "BC"]);
}
