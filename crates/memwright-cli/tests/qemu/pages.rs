//! Checks the errors that the pages of manpages-dev list: `errors.c` must provoke each of them, or `errors.unreachable`
//! must contain the reason why no program can.

use crate::prepare;
use libtest_mimic::{Completion, Failed, Trial};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// Returns the tests.
pub fn trials() -> Vec<Trial> {
    vec![
        Trial::test("errors::tags_of_pages", tags_of_pages),
        Trial::ignorable_test("errors::as_listed", as_listed),
    ]
}

/// The errors of each system call.
type Errors = BTreeMap<String, BTreeSet<String>>;

/// Checks that every error of a page has either a row in `errors.linux` or a reason in `errors.unreachable`. An error
/// must not have both.
fn as_listed() -> Result<Completion, Failed> {
    let pages = Pages::find();
    if pages.read("mmap")?.is_none() {
        return Ok(Completion::ignored_with(
            "the pages of manpages-dev are not installed",
        ));
    }
    let programs = prepare::workspace().join("programs");
    let provoked = provoked(&fs::read_to_string(programs.join("errors.linux"))?)?;
    let unreachable = unreachable(&fs::read_to_string(programs.join("errors.unreachable"))?)?;
    let mut wrong = Vec::new();
    for (call, errors) in &unreachable {
        let both = provoked.get(call).map(|rows| rows & errors);
        match both {
            None => wrong.push(format!("errors.unreachable: no row has the call {call}")),
            Some(both) if !both.is_empty() => {
                wrong.push(format!("errors.unreachable: rows of {call} have {both:?}"));
            }
            Some(_) => {}
        }
    }
    let nothing = BTreeSet::new();
    let mut with_page = 0;
    for (call, rows) in &provoked {
        let Some(listed) = pages.errors(call)? else {
            continue;
        };
        with_page += 1;
        let known = rows | unreachable.get(call).unwrap_or(&nothing);
        let missing = &listed - &known;
        if !missing.is_empty() {
            wrong.push(format!("neither file has {missing:?} of {call}"));
        }
    }
    // Version 6.03, the oldest supported release of the pages, already documents more calls than this.
    if with_page < 40 {
        wrong.push(format!("only {with_page} calls have a page"));
    }
    if wrong.is_empty() {
        Ok(Completion::Completed)
    } else {
        Err(wrong.join("\n").into())
    }
}

/// Returns the errors that the rows of `errors.linux` contain, by system call. A row begins with the name of the call.
/// `hugetlb` or `ioctl` can precede the name.
fn provoked(rows: &str) -> Result<Errors, Failed> {
    let mut all = Errors::new();
    for row in rows.lines() {
        let (what, answer) = row
            .rsplit_once(": ")
            .ok_or_else(|| format!("errors.linux: no answer in {row:?}"))?;
        let call = what
            .trim_start_matches("hugetlb ")
            .trim_start_matches("ioctl ");
        let end = call.find([' ', ',']).unwrap_or(call.len());
        let errors = all.entry(call[..end].to_owned()).or_default();
        errors.insert(answer.to_owned());
    }
    Ok(all)
}

/// Parses the lines of `errors.unreachable`: `CALL: ERROR ERROR...: why`.
fn unreachable(lines: &str) -> Result<Errors, Failed> {
    let mut all = Errors::new();
    let lines = lines
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    for line in lines {
        let mut parts = line.splitn(3, ": ");
        let (call, errors, why) = (parts.next(), parts.next(), parts.next());
        let (Some(call), Some(errors), Some(_)) = (call, errors, why) else {
            return Err(format!("errors.unreachable: no reason in {line:?}").into());
        };
        let known = all.entry(call.to_owned()).or_default();
        for error in errors.split(' ') {
            if !is_error(error) || !known.insert(error.to_owned()) {
                return Err(format!("errors.unreachable: {error:?} in {line:?}").into());
            }
        }
    }
    Ok(all)
}

/// The folder with the pages of section 2. `MEMWRIGHT_MANPAGES` selects a release that is not the installed one.
struct Pages(PathBuf);

impl Pages {
    fn find() -> Pages {
        let folder = env::var_os("MEMWRIGHT_MANPAGES").unwrap_or_else(|| "/usr/share/man".into());
        Pages(Path::new(&folder).join("man2"))
    }

    /// Returns the text of the page `name`. If the page only refers to another page, returns the text of that other
    /// page.
    fn read(&self, name: &str) -> Result<Option<String>, Failed> {
        let mut name = name.to_owned();
        // A page can consist of the name of the page that contains its text.
        for _ in 0..2 {
            let paths = ["2", "2const"].map(|suffix| self.0.join(format!("{name}.{suffix}.gz")));
            let Some(path) = paths.into_iter().find(|path| path.is_file()) else {
                return Ok(None);
            };
            let text = unpack(&path)?;
            let other = text.strip_prefix(".so man2/").and_then(|rest| {
                let file = rest.lines().next()?;
                file.split_once('.').map(|(other, _)| other.to_owned())
            });
            match other {
                Some(other) => name = other,
                None => return Ok(Some(text)),
            }
        }
        Ok(None)
    }

    /// Returns the errors that the page of `call` lists, or `None` if there is no page.
    fn errors(&self, call: &str) -> Result<Option<BTreeSet<String>>, Failed> {
        if let Some(text) = self.read(call)? {
            return Ok(Some(
                section(&text, ".SH ERRORS").map(tags).unwrap_or_default(),
            ));
        }
        // Older releases document all operations of userfaultfd on one page.
        let together = self.read("ioctl_userfaultfd")?;
        let of_command = together.and_then(|text| {
            let part = section(&text, &format!(".SS {call}"))?;
            Some(tags(part))
        });
        Ok(of_command)
    }
}

fn unpack(path: &Path) -> Result<String, Failed> {
    let output = Command::new("gzip").arg("-dc").arg(path).output()?;
    if !output.status.success() {
        return Err(format!("gzip cannot unpack {}", path.display()).into());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns the text after a heading, up to the next heading of the same or a higher level.
fn section<'a>(page: &'a str, heading: &str) -> Option<&'a str> {
    let at = page.find(&format!("\n{heading}\n"))? + 1 + heading.len();
    let rest = &page[at..];
    let end = ["\n.SH ", "\n.SS "]
        .iter()
        .take(if heading.starts_with(".SH") { 1 } else { 2 })
        .filter_map(|next| rest.find(next))
        .min();
    Some(&rest[..end.unwrap_or(rest.len())])
}

/// Returns the errors that are tags of paragraphs. Errors that occur only in the text of a paragraph are not returned.
fn tags(section: &str) -> BTreeSet<String> {
    let mut errors = BTreeSet::new();
    // The first paragraph can begin with its tag, without the macro `.TP` before it.
    let mut before_tag = true;
    for line in section.lines().filter(|line| !line.is_empty()) {
        if line.starts_with(".\\\"") {
            continue;
        }
        let words = [".B ", ".BR "]
            .iter()
            .find_map(|macro_| line.strip_prefix(macro_));
        if let Some(words) = words.filter(|_| before_tag) {
            let words = words.split([' ', '"']).filter(|word| is_error(word));
            errors.extend(words.map(str::to_owned));
        }
        before_tag = line.starts_with(".TP") || line.starts_with(".TQ");
    }
    errors
}

fn is_error(word: &str) -> bool {
    word.len() > 2
        && word.starts_with('E')
        && word
            .bytes()
            .all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit())
}

/// Checks that tags are found, and that text that only resembles a tag is not found.
fn tags_of_pages() -> Result<(), Failed> {
    let page = "\n.SH RETURN VALUE\n.TP\n.B ENOSYS\nNone.\n.SH ERRORS\n.B EAGAIN\nLater.\n.TP\n.BR EBADF \" or \" EINVAL\n\
                A file.\n.B EIO\nin the text.\n.TP\n.\\\" A comment.\n.B E2BIG\nLong.\n.SS Of others\n.TP\n.B EPERM\n.SH NOTES\n\
                .TP\n.B EDOM\n";
    let found: Vec<String> = section(page, ".SH ERRORS")
        .map(tags)
        .unwrap_or_default()
        .into_iter()
        .collect();
    if found != ["E2BIG", "EAGAIN", "EBADF", "EINVAL", "EPERM"] {
        return Err(format!("of a page: {found:?}").into());
    }
    let command = "\n.SS ONE\n.TP\n.B EBUSY\n.SS TWO\n.TP\n.B EXDEV\n";
    let found: Vec<String> = section(command, ".SS ONE")
        .map(tags)
        .unwrap_or_default()
        .into_iter()
        .collect();
    if found != ["EBUSY"] {
        return Err(format!("of a command: {found:?}").into());
    }
    Ok(())
}
