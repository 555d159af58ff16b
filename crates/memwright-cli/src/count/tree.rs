//! Symbolizes the plugin's profile, and converts it to a call tree.

use std::collections::{BTreeMap, HashMap};

use crate::count::raw::{Block, ENTERED, Kind, Raw};
use crate::count::source::Source;
use crate::model::profile::{Call, Line, Profile, UNATTRIBUTED};

/// The name of the node above the functions of a task whose callers are not known. The task is new, or has slept since
/// before the run.
const TASKS: &str = "[tasks switched to]";

/// A call tree under construction. `names` contains the index of each function's name.
struct Builder<'a> {
    source: &'a Source,
    names: BTreeMap<String, u32>,
    calls: Vec<Call>,
    places: HashMap<(Option<u32>, u32, bool), u32>,
    lines: BTreeMap<(u32, String), u64>,
}

impl Builder<'_> {
    fn name(&mut self, address: u64) -> u32 {
        let source = self.source;
        self.numbered(source.function(address))
    }

    fn numbered(&mut self, name: &str) -> u32 {
        let next = self.names.len() as u32;
        match self.names.get(name) {
            Some(number) => *number,
            None => {
                self.names.insert(name.to_owned(), next);
                next
            }
        }
    }

    /// Returns the functions inlined at this address (the innermost is last), and the source line if it is known.
    fn inlined(&mut self, address: u64) -> (Vec<u32>, Option<String>) {
        let found = self.source.inlined(address);
        let names = found.functions.iter().map(|name| self.numbered(name));
        (names.collect(), found.line)
    }

    /// Returns the node of the innermost function in `inlined`. Adds the functions of `inlined` below the node `place`,
    /// each below the one before.
    fn within(&mut self, place: u32, inlined: &[u32]) -> u32 {
        let walk = |place, function: &u32| self.place(Some(place), *function, false);
        inlined.iter().fold(place, walk)
    }

    /// Returns the node of a function below the node of its caller. Adds the node if it does not exist.
    fn place(&mut self, caller: Option<u32>, function: u32, interrupt: bool) -> u32 {
        let next = self.calls.len() as u32;
        let place = *self
            .places
            .entry((caller, function, interrupt))
            .or_insert(next);
        if place == next {
            self.calls.push(Call {
                caller,
                function,
                interrupt,
                count: 0,
                instructions: 0,
            });
        }
        place
    }
}

/// A frame: the node of its first function, and the nodes of functions that it entered by a jump.
struct Frame {
    first: u32,
    others: HashMap<u32, u32>,
}

/// Builds the symbolized profile. `total` is the number of kernel instructions, counted independently of the profile.
pub fn build(
    raw: &Raw,
    source: &Source,
    symbols_sha256: Option<String>,
    region: Option<u16>,
    total: u64,
) -> Profile {
    let mut builder = Builder {
        source,
        names: BTreeMap::new(),
        calls: Vec::new(),
        places: HashMap::new(),
        lines: BTreeMap::new(),
    };
    let mut frames = frames(raw, &mut builder);
    let runs: Vec<Vec<Run>> = raw
        .blocks
        .iter()
        .map(|block| runs(block, &mut builder))
        .collect();
    for cell in &raw.cells {
        let Some(frame) = &mut frames[cell.node as usize] else {
            continue;
        };
        if cell.block == ENTERED {
            builder.calls[frame.first as usize].count += cell.count;
        }
        for run in &runs[cell.block as usize] {
            let place = part(frame, run.function, &mut builder);
            if run.begins && place != frame.first {
                builder.calls[place as usize].count += cell.count;
            }
            let instructions = cell.count * run.instructions;
            let place = builder.within(place, &run.inlined);
            let call = &mut builder.calls[place as usize];
            call.instructions += instructions;
            let function = call.function;
            if let Some(line) = &run.line {
                let known = builder.lines.entry((function, line.clone()));
                *known.or_default() += instructions;
            }
        }
    }
    let functions = names_in_order(&builder.names);
    let line = |((function, place), instructions): ((u32, String), u64)| Line {
        function: functions[function as usize].clone(),
        place,
        instructions,
    };
    let mut profile = Profile {
        region,
        region_name: None,
        total,
        mismatches: raw.left_open,
        symbols_sha256,
        lines: builder.lines.into_iter().map(line).collect(),
        functions,
        calls: builder.calls,
    };
    profile
        .lines
        .sort_by(|one, other| (&one.function, &one.place).cmp(&(&other.function, &other.place)));
    let named: u64 = profile.calls.iter().map(|call| call.instructions).sum();
    leave_out_unused(&mut profile);
    add_unattributed(&mut profile, total.saturating_sub(named));
    in_canonical_order(&mut profile);
    profile
}

/// Removes each node whose function executed no instruction, if its callees executed none either.
fn leave_out_unused(profile: &mut Profile) {
    let sums = profile.inclusive_places();
    let mut kept = Vec::new();
    let mut moved = vec![None; profile.calls.len()];
    for (index, call) in profile.calls.iter().enumerate() {
        if sums[index] > 0 {
            moved[index] = Some(kept.len() as u32);
            let caller = call.caller.and_then(|caller| moved[caller as usize]);
            kept.push(Call { caller, ..*call });
        }
    }
    profile.calls = kept;
}

/// Adds a node for instructions that were counted but that are in no cell of the profile.
fn add_unattributed(profile: &mut Profile, instructions: u64) {
    if instructions == 0 {
        return;
    }
    let known = profile
        .functions
        .iter()
        .position(|name| name == UNATTRIBUTED);
    let function = known.unwrap_or_else(|| {
        profile.functions.push(UNATTRIBUTED.to_owned());
        profile.functions.len() - 1
    });
    profile.calls.push(Call {
        caller: None,
        function: function as u32,
        interrupt: false,
        count: 0,
        instructions,
    });
}

/// Sorts functions by name and nodes by the names in their call chains, so that equal counts produce equal bytes.
fn in_canonical_order(profile: &mut Profile) {
    let mut used = vec![false; profile.functions.len()];
    for call in &profile.calls {
        used[call.function as usize] = true;
    }
    let mut order: Vec<u32> = (0..profile.functions.len() as u32)
        .filter(|function| used[*function as usize])
        .collect();
    order.sort_by_key(|function| &profile.functions[*function as usize]);
    let mut number = vec![0; profile.functions.len()];
    for (new, old) in order.iter().enumerate() {
        number[*old as usize] = new as u32;
    }
    let names = order
        .iter()
        .map(|old| profile.functions[*old as usize].clone());
    profile.functions = names.collect();
    let mut below: BTreeMap<Option<u32>, Vec<u32>> = BTreeMap::new();
    for (index, call) in profile.calls.iter_mut().enumerate() {
        call.function = number[call.function as usize];
        below.entry(call.caller).or_default().push(index as u32);
    }
    for places in below.values_mut() {
        places.sort_by_key(|place| {
            let call = &profile.calls[*place as usize];
            std::cmp::Reverse((call.interrupt, call.function))
        });
    }
    let mut waiting: Vec<(u32, Option<u32>)> = Vec::new();
    let roots = below.remove(&None).unwrap_or_default();
    waiting.extend(roots.into_iter().map(|root| (root, None)));
    let mut calls = Vec::with_capacity(profile.calls.len());
    while let Some((place, caller)) = waiting.pop() {
        let here = calls.len() as u32;
        calls.push(Call {
            caller,
            ..profile.calls[place as usize]
        });
        let callees = below.remove(&Some(place)).unwrap_or_default();
        waiting.extend(callees.into_iter().map(|callee| (callee, Some(here))));
    }
    profile.calls = calls;
}

/// Adds each frame's first function to the tree, below the function of its caller. Returns the frame of each node of
/// `raw`; `None` for the root.
fn frames(raw: &Raw, builder: &mut Builder<'_>) -> Vec<Option<Frame>> {
    let mut frames: Vec<Option<Frame>> = Vec::with_capacity(raw.nodes.len());
    for node in &raw.nodes {
        let Some(parent) = node.parent else {
            frames.push(None);
            continue;
        };
        let caller = match &mut frames[parent as usize] {
            Some(frame) if node.from != 0 => {
                let function = builder.name(node.from - 1);
                let (inlined, _) = builder.inlined(node.from - 1);
                let place = part(frame, function, builder);
                Some(builder.within(place, &inlined))
            }
            Some(frame) => Some(frame.first),
            None => None,
        };
        let function = match node.kind {
            Kind::Task => builder.numbered(TASKS),
            Kind::Called | Kind::FromUser | Kind::Exception | Kind::Interrupt => {
                builder.name(node.start)
            }
        };
        let first = builder.place(caller, function, node.kind == Kind::Interrupt);
        frames.push(Some(Frame {
            first,
            others: HashMap::from([(function, first)]),
        }));
    }
    frames
}

/// Returns the node of a function in a frame. The function is the frame's first function, or one that the frame entered
/// by a jump. A jump counts as a call by the first function.
fn part(frame: &mut Frame, function: u32, builder: &mut Builder<'_>) -> u32 {
    let first = frame.first;
    *frame
        .others
        .entry(function)
        .or_insert_with(|| builder.place(Some(first), function, false))
}

/// Consecutive instructions of a block that belong to the same function and, if lines are known, to the same line.
struct Run {
    function: u32,
    inlined: Vec<u32>,
    line: Option<String>,
    instructions: u64,
    /// Whether the first instruction is the function's entry.
    begins: bool,
}

/// Splits a block by function and line.
fn runs(block: &Block, builder: &mut Builder<'_>) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let mut address = block.start;
    for size in &block.sizes {
        let function = builder.name(address);
        let (inlined, line) = builder.inlined(address);
        match runs.last_mut() {
            Some(run) if (run.function, &run.inlined, &run.line) == (function, &inlined, &line) => {
                run.instructions += 1;
            }
            Some(_) | None => runs.push(Run {
                function,
                inlined,
                line,
                instructions: 1,
                begins: builder.source.begins(address),
            }),
        }
        address += u64::from(*size);
    }
    runs
}

fn names_in_order(names: &BTreeMap<String, u32>) -> Vec<String> {
    let mut all: Vec<(u32, &String)> = names.iter().map(|(name, number)| (*number, name)).collect();
    all.sort_unstable();
    all.into_iter().map(|(_, name)| name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::count::raw::{Cell, Node};
    use crate::count::symbols::Symbols;

    const BASE: u64 = 0xffff_ffff_8100_0000;

    fn node(parent: Option<u32>, kind: Kind, from: u64, start: u64) -> Node {
        let at = |offset| if offset == 0 { 0 } else { BASE + offset };
        Node {
            parent,
            kind,
            from: at(from),
            start: BASE + start,
        }
    }

    fn source() -> Source {
        let line = |(name, offset): (&str, u64)| format!("{:x} T {name}\n", BASE + offset);
        let lines = [
            ("entry", 0x00),
            ("work", 0x10),
            ("tail", 0x20),
            ("leaf", 0x30),
            ("tick", 0x40),
            ("leaf.cold", 0x50),
        ];
        Source::of(Symbols::of_kallsyms(&lines.map(line).concat()))
    }

    /// `entry` calls `work`, which jumps to `tail`, which calls `leaf`. The interrupt `tick` interrupts `leaf`, which
    /// then jumps to its cold part.
    fn raw() -> Raw {
        let block = |(start, sizes): (u64, &[u8])| Block {
            start: BASE + start,
            sizes: sizes.to_vec(),
        };
        let cell = |(node, block, count)| Cell { node, block, count };
        Raw {
            left_open: 0,
            nodes: vec![
                node(None, Kind::Task, 0, 0),
                node(Some(0), Kind::FromUser, 0, 0x00),
                node(Some(1), Kind::Called, 0x05, 0x10),
                node(Some(2), Kind::Called, 0x25, 0x30),
                node(Some(0), Kind::Interrupt, 0, 0x40),
                node(Some(3), Kind::Exception, 0x31, 0x10),
            ],
            blocks: [
                (0, &[][..]),
                (0x00, &[1, 4]),
                (0x10, &[5, 5]),
                (0x20, &[5]),
                (0x30, &[1, 1, 1]),
                (0x40, &[2]),
                (0x50, &[1]),
            ]
            .map(block)
            .to_vec(),
            cells: [
                (1, ENTERED, 2),
                (2, ENTERED, 2),
                (3, ENTERED, 2),
                (4, ENTERED, 1),
                (5, ENTERED, 1),
                (1, 1, 2),
                (2, 2, 2),
                (2, 3, 2),
                (3, 4, 2),
                (3, 6, 1),
                (4, 5, 7),
                (5, 2, 1),
            ]
            .map(cell)
            .to_vec(),
        }
    }

    #[test]
    fn every_instruction_is_in_one_function() {
        let total = 2 * 2 + 2 * 2 + 2 + 3 * 2 + 1 + 7 + 2;
        let profile = build(&raw(), &source(), None, None, total);
        let rows: Vec<(String, u64, u64, u64)> = profile
            .rows()
            .into_iter()
            .map(|row| (row.name, row.calls, row.own, row.with_callees))
            .collect();
        let expected = [
            ("entry", 2, 4, 19),
            ("leaf", 2, 7, 9),
            ("tail", 2, 2, 11),
            ("tick", 1, 7, 7),
            // The exception within `work` does not count as an entry into `work` from outside.
            ("work", 3, 6, 15),
        ];
        let expected = expected.map(|(name, calls, own, all)| (name.to_owned(), calls, own, all));
        assert_eq!(rows, expected);
        assert_eq!(profile.unattributed(), 0);
        let roots: u64 = profile
            .inclusive_places()
            .iter()
            .zip(&profile.calls)
            .filter(|(_, call)| call.caller.is_none())
            .map(|(sum, _)| sum)
            .sum();
        assert_eq!(roots, total);
    }

    #[test]
    fn what_is_in_no_function_is_a_row() {
        let profile = build(&raw(), &Source::of(Symbols::default()), None, Some(1), 30);
        assert_eq!(profile.functions, [UNATTRIBUTED]);
        assert_eq!((profile.unattributed(), profile.total), (30, 30));
    }
}
