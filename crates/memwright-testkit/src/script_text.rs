//! Parses the text that `Debug` prints for a script.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::str::FromStr;

use crate::script::{Action, Range, Script, Step, Watcher, What};
use crate::terms::{Advice, Rights};

impl FromStr for Script {
    type Err = String;

    /// Parses one step per line, with or without its number. Skips lines that are empty, begin with `#`, or give the
    /// number of steps.
    fn from_str(text: &str) -> Result<Self, String> {
        text.lines()
            .map(str::trim)
            .filter(|line| {
                !line.is_empty() && !line.starts_with('#') && !line.starts_with("script of")
            })
            .map(|line| step(line).ok_or_else(|| format!("no step: {line}")))
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

fn step(line: &str) -> Option<Step> {
    let line = match line.split_once(": ") {
        Some((number, rest)) if number.parse::<usize>().is_ok() => rest,
        Some(_) | None => line,
    };
    let (who, what) = line.split_once(": ")?;
    let who: Vec<&str> = who.split_whitespace().collect();
    let ["process", process, "cpu", cpu] = who[..] else {
        return None;
    };
    Some(Step {
        process: number(process)?,
        cpu: number(cpu)?,
        action: action(&what.split_whitespace().collect::<Vec<_>>())?,
    })
}

fn number<T: FromStr>(word: &str) -> Option<T> {
    word.parse().ok()
}

fn range(word: &str) -> Option<Range> {
    let (at, pages) = word.split_once('+')?;
    Some(Range {
        at: number(at)?,
        pages: number(pages)?,
    })
}

fn rights(word: &str) -> Option<Rights> {
    let mut letters = word.chars();
    let mut granted = |letter| match letters.next()? {
        '-' => Some(false),
        found => (found == letter).then_some(true),
    };
    Some(Rights {
        read: granted('r')?,
        write: granted('w')?,
        execute: granted('x')?,
    })
}

fn watcher(word: &str) -> Option<Watcher> {
    match word {
        "Waits" => Some(Watcher::Waits),
        "Notes" => Some(Watcher::Notes),
        "Fills" => Some(Watcher::Fills),
        "Accesses" => Some(Watcher::Accesses),
        _ => None,
    }
}

fn what(words: &[&str]) -> Option<What> {
    Some(match *words {
        ["anonymous", "private"] => What::Anonymous,
        ["anonymous", "shared"] => What::SharedAnonymous,
        ["file", file, "from", "page", index, "private"] => {
            What::PrivateFile(number(file)?, number(index)?)
        }
        ["file", file, "from", "page", index, "shared"] => {
            What::SharedFile(number(file)?, number(index)?)
        }
        _ => return None,
    })
}

fn action(words: &[&str]) -> Option<Action> {
    Some(match *words {
        ["map", place, letters, ref rest @ .., "populate"] => {
            Action::Map(range(place)?, rights(letters)?, what(rest)?, true)
        }
        ["map", place, letters, ref rest @ ..] => {
            Action::Map(range(place)?, rights(letters)?, what(rest)?, false)
        }
        ["unmap", place] => Action::Unmap(range(place)?),
        ["seal", place] => Action::Seal(range(place)?),
        ["protect", place, letters] => Action::Protect(range(place)?, rights(letters)?),
        ["resize", place, "to", pages, "pages"] => Action::Resize(range(place)?, number(pages)?),
        ["move", place, "to", to] => Action::Move(range(place)?, number(to)?, false),
        ["move", place, "to", to, "keep"] => Action::Move(range(place)?, number(to)?, true),
        ["advise", place, name] => {
            let named = |advice: &&Advice| format!("{advice:?}") == name;
            Action::Advise(range(place)?, *Advice::ALL.iter().find(named)?)
        }
        ["watch", place, who] => Action::Watch(range(place)?, watcher(who)?),
        ["unwatch", place, who] => Action::Unwatch(range(place)?, watcher(who)?),
        ["write-protect", place, who, on @ ("on" | "off")] => {
            Action::WriteProtect(range(place)?, watcher(who)?, on == "on")
        }
        ["read-write-protect", place, on @ ("on" | "off")] => {
            Action::ReadWriteProtect(range(place)?, on == "on")
        }
        ["count-accesses", on @ ("on" | "off")] => Action::CountAccesses(on == "on"),
        ["scan-accessed", place] => Action::ScanAccessed(range(place)?),
        ["scan", place] => Action::Scan(range(place)?, false),
        ["scan", place, "protect"] => Action::Scan(range(place)?, true),
        ["clear"] => Action::ClearSoftDirty,
        ["collapse", place] => Action::Collapse(range(place)?),
        ["split", place, "to", order] => Action::Split(range(place)?, number(order)?),
        ["kernel", "read", page, "offset", offset] => {
            Action::KernelRead(number(page)?, number(offset)?)
        }
        ["kernel", "write", page, "offset", offset, "value", value] => {
            Action::KernelWrite(number(page)?, number(offset)?, number(value)?)
        }
        ["transfer", from, "to", to, "of", "process", other] => {
            Action::Transfer(number(from)?, number(to)?, number(other)?)
        }
        ["reclaim"] => Action::Reclaim,
        ["swap", on @ ("on" | "off")] => Action::Swap(on == "on"),
        ["merge"] => Action::Merge,
        ["bind", place, "to", node] => Action::Bind(range(place)?, number(node)?),
        ["migrate", place, "to", node] => Action::Migrate(range(place)?, number(node)?),
        ["hint"] => Action::Hint,
        ["fill", page, "value", value] => Action::Fill(number(page)?, number(value)?, false),
        ["fill", page, "value", value, "protect"] => {
            Action::Fill(number(page)?, number(value)?, true)
        }
        ["relocate", place, "to", to] => Action::Relocate(range(place)?, number(to)?),
        ["fork"] => Action::Fork,
        ["exit"] => Action::Exit,
        ["read", "page", page, "offset", offset] => Action::Read(number(page)?, number(offset)?),
        ["write", "page", page, "offset", offset, "value", value] => {
            Action::Write(number(page)?, number(offset)?, number(value)?)
        }
        ["fetch", "page", page] => Action::Fetch(number(page)?),
        ["read", "file", file, "page", index] => Action::ReadFile(number(file)?, number(index)?),
        ["write", "file", file, "page", index, "value", value] => {
            Action::WriteFile(number(file)?, number(index)?, number(value)?)
        }
        ["truncate", "file", file, "to", pages, "pages"] => {
            Action::Truncate(number(file)?, number(pages)?)
        }
        ["punch", "file", file, place] => {
            let place = range(place)?;
            Action::Punch(number(file)?, place.at, place.pages)
        }
        ["clean", "file", file] => Action::Clean(number(file)?),
        _ => return None,
    })
}
