//! Builds the tree of the calls of an operation, without calls that a reader of the operation does not follow.

use std::collections::HashSet;

use super::functions::Function;
use super::trace::Event;

/// The files that simulate hardware and devices. Calls of their functions are omitted, with all calls inside.
const MACHINE: [&str; 2] = ["crates/memwright-sim/src/", "crates/memwright-testkit/src/"];
/// The files that start an operation. Calls of their functions are omitted, but the calls inside are kept.
const STARTER: &str = "crates/memwright-sim/examples/";
/// Hooks of tests, which do nothing in the kernel. Calls of these functions are omitted, with all calls inside.
const HOOKS: &[&str] = &[
    "memwright_table::sync::step",
    "memwright_table::handle::injected_failure",
];
/// The maximum number of lines of an accessor: a signature, three lines, and a bracket. A call of an accessor is
/// omitted if all calls inside are omitted.
pub const SMALL: u32 = 5;

/// A call and the calls that it makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call<'a> {
    pub function: &'a Function,
    pub calls: Vec<Call<'a>>,
}

/// Returns the calls that a reader of the operation follows. The first event is the call of the function that performs
/// the operation; that call is not in the result.
///
/// A reader reads each function once, so a call is omitted if it leads to no new function.
pub fn calls<'a>(events: &[Event], functions: &'a [Function]) -> Vec<Call<'a>> {
    let mut open: Vec<(&Function, Vec<Call<'a>>)> = Vec::new();
    let mut all = Vec::new();
    for event in events {
        match event {
            Event::Call(index) => open.push((&functions[*index], Vec::new())),
            Event::Return => {
                let Some((function, calls)) = open.pop() else {
                    break;
                };
                let caller = open.last_mut().map_or(&mut all, |(_, calls)| calls);
                caller.extend(followed(function, calls));
            }
        }
    }
    new(all, &mut HashSet::new())
}

/// Returns the calls that replace a call of `function` in the tree: the call itself with the inner calls `calls`, only
/// the inner calls, or no call.
fn followed<'a>(function: &'a Function, calls: Vec<Call<'a>>) -> Vec<Call<'a>> {
    let hook = HOOKS.iter().any(|hook| function.path == *hook);
    let simulated = MACHINE
        .iter()
        .any(|folder| function.file.starts_with(folder));
    if hook || simulated {
        return Vec::new();
    }
    if function.file.starts_with(STARTER) {
        return calls;
    }
    if calls.is_empty() && (function.derived || function.lines <= SMALL) {
        return Vec::new();
    }
    vec![Call { function, calls }]
}

/// Returns the calls that lead to a function that is not in `read`. Adds their functions to `read`.
fn new<'a>(calls: Vec<Call<'a>>, read: &mut HashSet<(&'a str, &'a str)>) -> Vec<Call<'a>> {
    let mut left = Vec::new();
    for Call { function, calls } in calls {
        // Compare names, because the instances of a generic function have the same name.
        let first = read.insert((&function.file, &function.name));
        let calls = new(calls, read);
        if first || !calls.is_empty() {
            left.push(Call { function, calls });
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(file: &str, path: &str, lines: u32) -> Function {
        Function {
            address: 0,
            path: path.to_owned(),
            name: path.to_owned(),
            file: file.to_owned(),
            lines,
            derived: false,
        }
    }

    fn functions() -> Vec<Function> {
        let own = |path, lines| function("crates/a/src/x.rs", path, lines);
        vec![
            function("crates/memwright-sim/examples/walk.rs", "start", 9),
            own("first", 9),
            own("second", 9),
            own("accessor", SMALL),
            function("crates/memwright-sim/src/machine.rs", "machine", 9),
            own("memwright_table::sync::step", 9),
            Function {
                derived: true,
                ..own("derived", 9)
            },
            own("third", 9),
        ]
    }

    /// Returns the events of a text such as `0(1(23))`. Each digit is the call of a function, and the brackets after it
    /// contain the calls inside.
    fn events(text: &str) -> Vec<Event> {
        let mut events = Vec::new();
        let letters: Vec<char> = text.chars().collect();
        for (index, letter) in letters.iter().enumerate() {
            if let Some(digit) = letter.to_digit(10) {
                events.push(Event::Call(digit as usize));
            }
            let open = letters.get(index + 1) == Some(&'(');
            if (letter.is_ascii_digit() && !open) || *letter == ')' {
                events.push(Event::Return);
            }
        }
        events
    }

    fn text(calls: &[Call<'_>], functions: &[Function]) -> String {
        let one = |call: &Call<'_>| {
            let index = functions.iter().position(|one| one == call.function);
            let index = index.expect("one of the functions");
            match call.calls.as_slice() {
                [] => index.to_string(),
                calls => format!("{index}({})", text(calls, functions)),
            }
        };
        calls.iter().map(one).collect()
    }

    #[test]
    fn what_a_reader_does_not_follow_is_left_out() {
        let functions = functions();
        for (trace, expected) in [
            ("0(1(2))", "1(2)"),
            ("0(12)", "12"),
            // The machine and the calls inside are omitted.
            ("0(1(4(2)))", "1"),
            ("0(1(5(2)))", "1"),
            // Accessors are omitted unless a call inside is kept.
            ("0(1(3))", "1"),
            ("0(1(3(3(4))))", "1"),
            ("0(1(3(2)))", "1(3(2))"),
            ("0(1(6))", "1"),
            // Functions that have been read are omitted.
            ("0(1(222))", "1(2)"),
            ("0(1(2)2)", "1(2)"),
            ("0(1(2)1(2))", "1(2)"),
            ("0(1(2)1(27))", "1(2)1(7)"),
            ("0(1(12))", "1(2)"),
            ("0(1)0(2)", "12"),
        ] {
            let calls = calls(&events(trace), &functions);
            assert_eq!(text(&calls, &functions), expected, "{trace}");
        }
    }
}
