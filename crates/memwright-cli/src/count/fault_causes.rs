//! Names the causes of page faults: the function, line, area or process of each site.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::count::fault_sites::{Site, Sites};
use crate::count::user_source::{Code, UserSource};
use crate::model::faults::{
    ANONYMOUS, ANONYMOUS_CODE, By, Cause, EXEC, EXECVE, Faults, Stacks, Tally, UNKNOWN,
};

/// A row's identity: its name, the file with the code, and the system call.
type Key = (String, Option<String>, Option<String>);

/// Groups page faults by their causes. `find` returns the path on the host of the file that the guest has at a path.
/// Also returns the faults by stack: the process, the file, the function and, with lines, the line.
pub fn causes(sites: &Sites, by: By, find: &dyn Fn(&Path) -> Option<PathBuf>) -> (Faults, Stacks) {
    let mut source = UserSource::new(find, by == By::Line);
    let mut rows: BTreeMap<Key, Tally> = BTreeMap::new();
    let mut stacks: Stacks = BTreeMap::new();
    for (site, tally) in sites.iter() {
        let code = code(site, &mut source);
        rows.entry(key(site, by, &code)).or_default().add(tally);
        stacks.entry(stack(site, by, &code)).or_default().add(tally);
    }
    let mut rows: Vec<Cause> = rows.into_iter().map(row).collect();
    // The sort is stable: rows with equal numbers of faults stay sorted by name.
    rows.sort_by_key(|row| std::cmp::Reverse(row.faults));
    let notes = match by {
        By::Symbol | By::Line => source.notes(),
        By::Area | By::Process => Vec::new(),
    };
    let faults = Faults {
        by,
        total: sites.total(),
        rows,
        notes,
    };
    (faults, stacks)
}

fn row(((name, object, call), tally): (Key, Tally)) -> Cause {
    Cause {
        name,
        object,
        call,
        faults: tally.faults(),
        kinds: tally.kinds.into_iter().collect(),
        flushes: tally.flushes,
    }
}

/// Returns the function, line and address of a site's code; empty if the code is not in a file.
fn code(site: &Site, source: &mut UserSource<'_>) -> Code {
    match &site.code {
        Some(place) if place.name.starts_with('/') => source.code(&place.name, place.offset),
        Some(_) | None => Code::default(),
    }
}

fn key(site: &Site, by: By, code: &Code) -> Key {
    match by {
        By::Symbol => (symbol(site, code), object(site), in_call(site)),
        By::Line => {
            let line = code.line.clone();
            let line = line.unwrap_or_else(|| symbol(site, code));
            (line, object(site), in_call(site))
        }
        By::Area => (area(site), None, None),
        By::Process => (process(site), None, None),
    }
}

/// Returns the system call in which the kernel took the faults. Returns `None` for the row [`EXEC`], whose name already
/// states the system call.
fn in_call(site: &Site) -> Option<String> {
    site.call.clone().filter(|_| site.instruction.is_some())
}

/// Returns the path of the file with a site's code.
fn object(site: &Site) -> Option<String> {
    let place = site.code.as_ref()?;
    place.name.starts_with('/').then(|| place.name.clone())
}

fn symbol(site: &Site, code: &Code) -> String {
    let Some(place) = &site.code else {
        let is_exec = site.call.as_deref() == Some(EXECVE) && site.instruction.is_none();
        return if is_exec { EXEC } else { UNKNOWN }.to_owned();
    };
    if let Some(name) = &code.function {
        return name.clone();
    }
    match place.name.as_str() {
        "" => ANONYMOUS_CODE.to_owned(),
        path if path.starts_with('/') => format!("+{:#x}", code.address.unwrap_or(place.offset)),
        name => name.to_owned(),
    }
}

fn area(site: &Site) -> String {
    match &site.area {
        None if *site == Site::default() => UNKNOWN.to_owned(),
        None => "[no area]".to_owned(),
        Some(place) => match place.name.as_str() {
            "" => ANONYMOUS.to_owned(),
            path if path.starts_with('/') => format!("{path}+{:#x}", place.offset),
            name => name.to_owned(),
        },
    }
}

fn process(site: &Site) -> String {
    match site.process {
        None => UNKNOWN.to_owned(),
        Some(id) => format!("{id} {}", site.name).trim_end().to_owned(),
    }
}

/// Returns the frames of a site in a flame graph.
fn stack(site: &Site, by: By, code: &Code) -> Vec<String> {
    let call = in_call(site).map(|call| format!("[{call}]"));
    let line = code.line.clone().filter(|_| by == By::Line);
    let area = (by == By::Area).then(|| area(site));
    let frames = [
        Some(process(site)),
        object(site),
        Some(symbol(site, code)),
        line,
        call,
        area,
    ];
    // A semicolon separates frames, so semicolons within a frame are replaced.
    let frames = frames.into_iter().flatten();
    frames.map(|frame| frame.replace(';', ":")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::count::fault_sites::Place;

    fn place(name: &str, offset: u64) -> Option<Place> {
        Some(Place {
            name: name.to_owned(),
            offset,
        })
    }

    fn site(code: Option<Place>, call: Option<&str>, area: Option<Place>) -> Site {
        Site {
            process: Some(2),
            name: "x;y".to_owned(),
            instruction: code.as_ref().map(|place| place.offset),
            code,
            call: call.map(str::to_owned),
            area,
        }
    }

    #[test]
    fn every_site_is_in_one_row() {
        let mut sites = Sites::default();
        for (site, count) in [
            (site(place("/x", 0x1136), None, place("[heap]", 0)), 10),
            (site(place("/x", 0x1136), Some("read"), place("", 0)), 1),
            (site(place("", 0x10), None, place("/lib", 0x2000)), 3),
            (site(None, Some("execve"), place("[stack]", 0)), 2),
            (site(place("[vdso]", 0), None, None), 1),
            (Site::default(), 4),
        ] {
            sites.add(site, "cow", count, Some(1));
        }
        let rows = |by| {
            let (faults, stacks) = causes(&sites, by, &|_| None);
            assert_eq!(faults.rows.iter().map(|row| row.faults).sum::<u64>(), 21);
            assert_eq!(stacks.values().map(Tally::faults).sum::<u64>(), 21);
            let rows = faults.rows.iter();
            rows.map(|row| format!("{} {}", row.faults, row.label()))
                .collect::<Vec<_>>()
        };
        let by_symbol = [
            "10 +0x1136  x",
            "4 [unknown]",
            "3 [anonymous code]",
            "2 [exec]",
            "1 +0x1136  x  in read",
            "1 [vdso]",
        ];
        assert_eq!(rows(By::Symbol), by_symbol);
        assert_eq!(rows(By::Line), by_symbol);
        assert_eq!(
            rows(By::Area),
            [
                "10 [heap]",
                "4 [unknown]",
                "3 /lib+0x2000",
                "2 [stack]",
                "1 [anonymous]",
                "1 [no area]"
            ]
        );
        assert_eq!(rows(By::Process), ["17 2 x;y", "4 [unknown]"]);
        let (_, stacks) = causes(&sites, By::Symbol, &|_| None);
        assert!(stacks.contains_key(&["2 x:y", "/x", "+0x1136", "[read]"].map(str::to_owned)[..]));
    }
}
