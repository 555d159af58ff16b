//! Reads page faults from the events of Memwright's kernel.

use std::collections::HashMap;

use anyhow::Context;
use serde::Deserialize;

use crate::count::fault_sites::{Place, Site, Sites};
use crate::model::account::{Account, Value};

/// The prefix of the names of the account's rows that count page faults.
const ROW: &str = "fault_";
/// Rows with the prefix [`ROW`] that are not used. `fault_around` does not count page faults, and `fault_gup_major`
/// counts faults that the row `fault_gup` includes.
const NO_FAULTS: [&str; 2] = ["fault_around", "fault_gup_major"];
/// The kind of faults of pages that the kernel faulted in without a trap.
const FAULTED_IN: &str = "gup";
const FAILED: &str = "failed";
const REFUSED: &str = "refused";

/// The fields of a trace event that matter for page faults. Events of other kinds have none of these fields.
#[derive(Debug, Deserialize)]
struct Event {
    event: String,
    process: Option<u64>,
    thread: Option<u64>,
    #[serde(default)]
    name: String,
    instruction: Option<String>,
    call: Option<String>,
    kind: Option<String>,
    refused: Option<String>,
    area_is: Option<Area>,
    code: Option<[String; 2]>,
    code_is: Option<Area>,
    #[serde(default)]
    minor: u64,
    #[serde(default)]
    failed: u64,
    #[serde(default)]
    major: u64,
}

/// An area of memory, as an event describes it: its name, and an offset in its file.
#[derive(Debug, Deserialize)]
struct Area {
    name: String,
    offset: String,
}

/// The addresses of an area of code, and the place in the file that the area maps.
#[derive(Debug, Clone)]
struct Code {
    start: u64,
    end: u64,
    place: Place,
}

/// Collects the page faults of a run from its trace.
#[derive(Debug, Default)]
pub struct FaultTrace {
    sites: Sites,
    /// The areas of code that events have named, by process. The address of an instruction is looked up in the areas of
    /// its process.
    code: HashMap<u64, Vec<Code>>,
    /// The first name of each process. A process has no name while its first program is loaded.
    names: HashMap<u64, String>,
    /// For each thread, the flushes since its last fault, with the instruction that caused them.
    flushes: HashMap<u64, (Option<String>, u64)>,
}

impl FaultTrace {
    /// Adds the events of one frame, one per line.
    ///
    /// # Errors
    /// If a line is not an event.
    pub fn add(&mut self, lines: &[u8]) -> anyhow::Result<()> {
        for line in lines.split(|byte| *byte == b'\n') {
            if !line.is_empty() {
                let event = serde_json::from_slice(line)
                    .context("the guest's trace has a line that is not an event")?;
                self.event(event)
                    .context("the guest's trace has a damaged event")?;
            }
        }
        Ok(())
    }

    fn event(&mut self, event: Event) -> anyhow::Result<()> {
        let thread = event.thread.unwrap_or(0);
        match event.event.as_str() {
            "flush" => {
                let flushes = self.flushes.entry(thread).or_default();
                if flushes.0 != event.instruction {
                    *flushes = (event.instruction, 0);
                }
                flushes.1 += 1;
            }
            "fault" => {
                let flushes = self.flushes.remove(&thread);
                let flushes = flushes.filter(|(by, _)| *by == event.instruction);
                let kind = counted_as(event.kind.as_deref(), event.refused.as_deref());
                let site = self.site(&event)?;
                if let Some(kind) = kind {
                    let flushes = flushes.map_or(0, |(_, count)| count);
                    self.sites.add(site, kind, 1, Some(flushes));
                }
            }
            "fault_in" => {
                let site = self.site(&event)?;
                let pages = event.minor + event.major;
                self.sites.add(site.clone(), FAULTED_IN, pages, None);
                self.sites.add(site, FAILED, event.failed, None);
            }
            _ => drop(self.flushes.remove(&thread)),
        }
        Ok(())
    }

    fn site(&mut self, event: &Event) -> anyhow::Result<Site> {
        let instruction = event.instruction.as_deref().map(number).transpose()?;
        if let (Some(process), false) = (event.process, event.name.is_empty()) {
            let name = || event.name.clone();
            self.names.entry(process).or_insert_with(name);
        }
        let known = self.code.entry(event.process.unwrap_or(0)).or_default();
        if let (Some([start, end]), Some(area)) = (&event.code, &event.code_is) {
            let code = Code {
                start: number(start)?,
                end: number(end)?,
                place: place(area)?,
            };
            // The new area replaces known areas that it overlaps, because these are no longer mapped.
            known.retain(|other| other.end <= code.start || code.end <= other.start);
            known.push(code);
        }
        let code = instruction.and_then(|address| {
            let code = known
                .iter()
                .find(|code| (code.start..code.end).contains(&address))?;
            Some(Place {
                name: code.place.name.clone(),
                offset: address - code.start + code.place.offset,
            })
        });
        Ok(Site {
            process: event.process,
            name: event.name.clone(),
            instruction,
            code,
            call: event.call.clone(),
            area: event.area_is.as_ref().map(place).transpose()?,
        })
    }

    /// Returns the faults by site. For each kind, the sites add up to the number of faults in the account.
    ///
    /// # Errors
    /// If the trace has more faults than the account counts.
    pub fn finish(mut self, account: &Account) -> anyhow::Result<Sites> {
        self.sites.name_processes(&self.names);
        self.sites.complete(&kinds(account))?;
        Ok(self.sites)
    }
}

/// Returns the rows of an account that count page faults: the name without [`ROW`], and the count.
fn kinds(account: &Account) -> Vec<(String, u64)> {
    let rows = account.rows.iter();
    rows.filter(|(name, _)| !NO_FAULTS.contains(&name.as_str()))
        .filter_map(|(name, value)| {
            let kind = name.strip_prefix(ROW)?;
            match value {
                Value::Count(count) => Some((kind.to_owned(), *count)),
                Value::Unobservable => None,
            }
        })
        .collect()
}

/// Returns the kind by which the account counts a fault. Returns `None` if the account does not count the fault,
/// because the access is made again.
fn counted_as<'a>(kind: Option<&'a str>, refused: Option<&str>) -> Option<&'a str> {
    // The text of an error that has a value contains the value in parentheses, which are removed here.
    let error = refused.map(|text| text.split_once('(').map_or(text, |(error, _)| error));
    match (kind, error) {
        (Some(kind), _) => Some(kind),
        (None, Some("NoArea" | "Denied" | "Key" | "StackLimit")) => Some(REFUSED),
        (None, Some("BeyondObject" | "Io" | "Guard" | "Poison" | "NoHugePage")) => Some(FAILED),
        (None, Some(_) | None) => None,
    }
}

fn place(area: &Area) -> anyhow::Result<Place> {
    Ok(Place {
        name: area.name.clone(),
        offset: number(&area.offset)?,
    })
}

/// Parses a hexadecimal number with its prefix.
fn number(text: &str) -> anyhow::Result<u64> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u64::from_str_radix(digits, 16).with_context(|| format!("{text:?} is not a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(rows: &[(&str, u64)]) -> Account {
        let mut account = Account::default();
        for (name, count) in rows {
            account.add_lines(&format!("{name} {count}\n"));
        }
        account
    }

    fn sites(lines: &str, rows: &[(&str, u64)]) -> anyhow::Result<Sites> {
        let mut trace = FaultTrace::default();
        trace.add(lines.as_bytes())?;
        trace.finish(&account(rows))
    }

    const FAULT: &str = r#"{"clock":1,"cpu":0,"process":2,"thread":2,"name":"x","instruction":"0x401136","event":"fault","address":"0x5000","access":"write","kind":"demand_zero","area":["0x5000","0x6000"],"area_is":{"name":"[heap]","offset":"0x0"},"code":["0x401000","0x402000"],"code_is":{"name":"/x","offset":"0x1000"}}"#;
    const FLUSH: &str = r#"{"clock":1,"cpu":0,"process":2,"thread":2,"name":"x","instruction":"0x401136","event":"flush","reason":"moved","entries":1,"cpus":0}"#;
    const FAULTED_IN: &str = r#"{"clock":1,"cpu":0,"process":2,"thread":2,"name":"x","instruction":"0x401200","call":"mlock","event":"fault_in","minor":3,"major":1,"failed":2}"#;

    #[test]
    fn faults_have_sites() {
        let text = [FLUSH, FAULT, FAULT, FAULTED_IN].join("\n");
        let rows = [
            ("fault_demand_zero", 3),
            ("fault_gup", 4),
            ("fault_gup_major", 1),
            ("fault_around", 7),
            ("fault_failed", 2),
        ];
        let found = sites(&text, &rows).unwrap();
        let found: Vec<_> = found.iter().collect();
        let [(unknown, one), (in_program, two), (in_call, three)] = found.as_slice() else {
            panic!("{found:?}")
        };
        assert_eq!((*unknown, one.faults()), (&Site::default(), 1));
        let code = in_program.code.as_ref().unwrap();
        assert_eq!((code.name.as_str(), code.offset), ("/x", 0x1136));
        assert_eq!((two.faults(), two.flushes), (2, Some(1)));
        assert_eq!(in_program.area.as_ref().unwrap().name, "[heap]");
        // The code of a call is known from an earlier fault in the same area.
        let code = in_call.code.as_ref().unwrap();
        assert_eq!((code.name.as_str(), code.offset), ("/x", 0x1200));
        assert_eq!(in_call.call.as_deref(), Some("mlock"));
        assert_eq!((three.faults(), three.flushes), (6, None));
    }

    #[test]
    fn a_process_without_a_name_has_its_first_one() {
        let early = FAULT.replace(r#""name":"x""#, r#""name":"""#);
        let found = sites(&[&early, FAULT].join("\n"), &[("fault_demand_zero", 2)]).unwrap();
        let names: Vec<_> = found
            .iter()
            .map(|(site, tally)| (&*site.name, tally.faults()))
            .collect();
        assert_eq!(names, [("x", 2)]);
    }

    #[test]
    fn a_trace_with_too_many_faults_is_refused() {
        for (text, rows) in [
            (FAULT, &[("fault_file", 1)][..]),
            ("{}", &[]),
            ("fault", &[]),
            (
                &FAULT.replace("0x401136", "0xx"),
                &[("fault_demand_zero", 1)],
            ),
        ] {
            assert!(sites(text, rows).is_err(), "{text}");
        }
    }

    #[test]
    fn a_fault_that_is_made_again_is_not_counted() {
        for (kind, refused, expected) in [
            (Some("cow"), None, Some("cow")),
            (None, Some("NoArea"), Some("refused")),
            (None, Some("Key(3)"), Some("refused")),
            (None, Some("Poison(Size4K)"), Some("failed")),
            (None, Some("WouldBlock"), None),
            (None, Some("Watched(WatchedFault { minor: false })"), None),
            (None, None, None),
        ] {
            assert_eq!(counted_as(kind, refused), expected);
        }
    }
}
