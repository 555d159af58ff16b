//! Reconstructs the command that repeats the runs of a document.

use std::ffi::OsString;
use std::path::Path;

use crate::model::faults::Faults;
use crate::model::kernel_run::Document;
use crate::model::profile::Profile;
use crate::model::shell::shell_line;
use crate::model::{change, memwright_run as report};

/// The settings that are also options of the same name, each with its default value. The value is empty for an option
/// without a default.
const OPTIONS: [(&str, &str); 7] = [
    ("thp", "madvise"),
    ("thp-size", ""),
    ("swap", ""),
    ("hugetlb", ""),
    ("numa", "1"),
    ("env", ""),
    ("append", ""),
];
const USUAL_MEMORY: u64 = 512 << 20;

/// Returns the command that runs the program of these documents on their kernels and prints these rows; `None` if there
/// are no documents.
pub fn on_kernels(documents: &[Document], rows: &[String]) -> Option<String> {
    let first = documents.first()?;
    let mut words = vec!["memwright".to_owned()];
    words.push(
        if documents.len() > 1 {
            "compare"
        } else {
            "run"
        }
        .to_owned(),
    );
    // A setting that not every document contains is written into the columns that have it. As an option of the command,
    // it would apply to all columns, because a column cannot unset an option.
    let added = |key: &str| change::can_change(key) && !is_always_set(key);
    let everywhere = |setting: &String| documents.iter().all(|one| one.settings.contains(setting));
    for document in documents {
        let mut kernel = column(document);
        if document.memory != first.memory {
            kernel += &format!(",memory={}M", document.memory >> 20);
        }
        if document.cpus != first.cpus {
            kernel += &format!(",cpus={}", document.cpus);
        }
        for setting in &document.settings {
            let is_own = match setting.split_once('=') {
                Some((key, _)) if added(key) => !everywhere(setting),
                Some((key, _)) => is_always_set(key) && !first.settings.contains(setting),
                None => false,
            };
            if is_own {
                kernel += &format!(",{setting}");
            }
        }
        let program = document.arguments.first();
        if let Some(program) = program.filter(|_| program != first.arguments.first()) {
            kernel += &format!(",{}={program}", change::PROGRAM);
        }
        words.extend(["--kernel".to_owned(), kernel]);
    }
    let is_common = |setting: &&String| {
        let key = setting.split_once('=').map(|(key, _)| key);
        !key.is_some_and(added) || everywhere(setting)
    };
    let common: Vec<String> = first.settings.iter().filter(is_common).cloned().collect();
    words.extend(machine(first.memory, first.cpus, &common));
    for pattern in rows {
        words.extend(["--rows".to_owned(), pattern.clone()]);
    }
    words.extend(first.functions.iter().flat_map(functions));
    words.extend(first.faults.iter().flat_map(causes));
    words.extend(first.arguments.iter().cloned());
    Some(line(&words))
}

/// Returns the options that produce a profile.
fn functions(profile: &Profile) -> Vec<String> {
    let mut words = vec!["--functions".to_owned()];
    if let Some(number) = profile.region {
        let region = profile.region_name.clone();
        let region = region.unwrap_or_else(|| number.to_string());
        words.extend(["--region".to_owned(), region]);
    }
    words.extend((!profile.lines.is_empty()).then(|| "--lines".to_owned()));
    words
}

/// Returns the options that count page faults by their causes.
fn causes(faults: &Faults) -> [String; 2] {
    ["--faults-by".to_owned(), faults.by.name().to_owned()]
}

/// Returns whether every document contains this setting. This is the case if its option has a default value.
fn is_always_set(key: &str) -> bool {
    let mut options = OPTIONS.iter();
    options.any(|(option, usual)| *option == key && !usual.is_empty())
}

/// Returns `[NAME=]IMAGE` for a document's kernel.
fn column(document: &Document) -> String {
    let (name, path) = (&document.kernel.name, &document.host.image);
    let image = kept(path).unwrap_or(path);
    let own_name = kept(path).or_else(|| Path::new(path).file_name()?.to_str());
    match own_name.is_some_and(|own| change::is_derived(name, own)) {
        true => image.to_owned(),
        false => format!("{name}={image}"),
    }
}

/// Returns the name under which an image is stored in the cache; `None` for an image outside the cache.
fn kept(image: &str) -> Option<&str> {
    let (_, name) = image.strip_suffix("/vmlinuz")?.rsplit_once("/kernels/")?;
    (!name.contains('/')).then_some(name)
}

/// Returns the command that runs the program of this document on Memwright.
pub fn on_memwright(document: &report::Document) -> String {
    let mut words = vec!["memwright".to_owned(), "run".to_owned()];
    words.extend(machine(document.memory, document.cpus, &document.settings));
    for policy in &document.policies {
        words.extend(["--policy".to_owned(), policy.clone()]);
    }
    words.extend(document.faults.iter().flat_map(causes));
    words.extend(document.arguments.iter().cloned());
    line(&words)
}

/// Returns the options that describe a machine, without those that have their default values.
fn machine(memory: u64, cpus: u8, settings: &[String]) -> Vec<String> {
    let mut words = Vec::new();
    if memory != USUAL_MEMORY {
        words.extend(["--memory".to_owned(), format!("{}M", memory >> 20)]);
    }
    if cpus != 1 {
        words.extend(["--cpus".to_owned(), cpus.to_string()]);
    }
    for setting in settings {
        let Some((name, value)) = setting.split_once('=') else {
            continue;
        };
        if let Some((place, _)) = value.split_once(" sha256 ")
            && name == "file"
        {
            words.extend(["--file".to_owned(), place.to_owned()]);
        }
        let option = OPTIONS.iter().find(|(option, _)| *option == name);
        if option.is_some_and(|(_, usual)| *usual != value) {
            words.extend([format!("--{name}"), value.to_owned()]);
        }
    }
    words
}

/// Joins words to one line, quoted for a shell.
fn line(words: &[String]) -> String {
    let words: Vec<OsString> = words.iter().map(OsString::from).collect();
    match words.split_first() {
        Some((program, arguments)) => shell_line(program, arguments),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_named() {
        let mut one = crate::compare::schema::document();
        (one.memory, one.settings) = (USUAL_MEMORY, Vec::new());
        (one.functions, one.faults) = (None, None);
        one.kernel.name = "debian:trixie".to_owned();
        one.host.image = "/home/x/.cache/memwright/kernels/debian:trixie/vmlinuz".to_owned();
        let mut other = one.clone();
        (other.kernel.name, other.host.image) = ("after".to_owned(), "/x/b z".to_owned());
        assert_eq!(on_kernels(&[], &[]), None);
        assert_eq!(
            on_kernels(&[one, other], &[]).unwrap(),
            "memwright compare --kernel debian:trixie --kernel 'after=/x/b z' x"
        );
    }

    #[test]
    fn a_column_keeps_what_it_alone_has() {
        let mut one = crate::compare::schema::document();
        (one.memory, one.settings) = (USUAL_MEMORY, vec!["env=A=1".to_owned()]);
        (one.functions, one.faults) = (None, None);
        one.settings.push("append=quiet".to_owned());
        one.settings.push("thp=madvise".to_owned());
        one.kernel.name = "k".to_owned();
        one.host.image = "/x/k".to_owned();
        let mut other = one.clone();
        other.kernel.name = "k thp=never memory=1G".to_owned();
        other.memory = 1 << 30;
        other.settings = vec!["env=A=1".to_owned(), "thp=never".to_owned()];
        other.arguments[0] = "/y".to_owned();
        assert_eq!(
            on_kernels(&[one, other], &[]).unwrap(),
            "memwright compare --kernel /x/k,append=quiet \
             --kernel /x/k,memory=1024M,thp=never,program=/y --env A=1 x"
        );
    }

    #[test]
    fn what_was_shown_is_asked_for_again() {
        use crate::model::profile::Line;
        let mut one = crate::compare::schema::document();
        (one.memory, one.settings) = (USUAL_MEMORY, Vec::new());
        one.kernel.name = "k".to_owned();
        one.host.image = "/x/k".to_owned();
        (one.functions, one.faults) = (None, None);
        let rows = ["region.1.*".to_owned()];
        let command = |one: &Document| on_kernels(std::slice::from_ref(one), &rows).unwrap();
        let start = "memwright run --kernel /x/k --rows 'region.1.*'";
        assert_eq!(command(&one), format!("{start} x"));
        let mut profile = crate::model::profile::tests::profile(&[(None, 0, 1)]);
        one.functions = Some(profile.clone());
        assert_eq!(command(&one), format!("{start} --functions x"));
        profile.region = Some(7);
        profile.lines = vec![Line {
            function: "a".to_owned(),
            place: "b:1".to_owned(),
            instructions: 1,
        }];
        one.functions = Some(profile.clone());
        assert_eq!(
            command(&one),
            format!("{start} --functions --region 7 --lines x")
        );
        profile.region_name = Some("toggle".to_owned());
        one.functions = Some(profile);
        assert_eq!(
            command(&one),
            format!("{start} --functions --region toggle --lines x")
        );
    }

    #[test]
    fn a_kept_kernel_is_named_without_a_path() {
        for (image, expected) in [
            (
                "/x/memwright/kernels/debian:trixie/vmlinuz",
                Some("debian:trixie"),
            ),
            ("/x/kernels/a/b/vmlinuz", None),
            ("/x/kernels/debian:trixie/bzImage", None),
            ("/boot/vmlinuz", None),
        ] {
            assert_eq!(kept(image), expected, "{image}");
        }
    }

    #[test]
    fn options_are_those_that_are_unusual() {
        let words = |memory, cpus, settings: &[&str]| {
            let settings: Vec<String> = settings.iter().map(|one| (*one).to_owned()).collect();
            machine(memory, cpus, &settings).join(" ")
        };
        let empty = crate::model::settings::empty_input();
        assert_eq!(words(512 << 20, 1, &["thp=madvise", "numa=1", &empty]), "");
        assert_eq!(
            words(
                1 << 30,
                2,
                &[
                    "thp=never",
                    "swap=zram:64M",
                    "env=A=1",
                    "file=/x sha256 00",
                    "append=quiet x",
                    "trace=on"
                ]
            ),
            "--memory 1024M --cpus 2 --thp never --swap zram:64M --env A=1 --file /x --append quiet x"
        );
    }
}
