//! Options that have another value in one column of a comparison.

use std::ffi::OsString;
use std::fmt;

use crate::model::image::System;
use crate::model::machine::parse_cpus;
use crate::model::nodes::parse_nodes;
use crate::model::plan::Setup;
use crate::model::policy::parse_policy;
use crate::model::size::{parse_huge_pages, parse_memory_size, parse_swap};
use crate::model::thp::parse_thp_size;

/// An option with a different value in one column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The option that differs.
    pub key: Key,
    /// The value of the option, as given on the command line.
    pub value: String,
}

/// The options that a column can change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// Adds words to the kernel's command line.
    Append,
    /// The number of CPUs.
    Cpus,
    /// Memory reserved for hugetlb pages.
    Hugetlb,
    /// The amount of memory.
    Memory,
    /// The NUMA nodes.
    Numa,
    /// Adds a policy of Memwright's kernel.
    Policy,
    /// Runs another program.
    Program,
    /// The swap devices.
    Swap,
    /// Which memory gets 2 MiB pages.
    Thp,
    /// Which memory gets pages of another size.
    ThpSize,
}

impl Key {
    /// Returns why a kernel of this kind does not support the option, or `None` if the kernel supports it.
    pub const fn is_refused_by(self, system: System) -> Option<&'static str> {
        match (self, system) {
            (Self::Append, System::Memwright) => Some("Memwright's kernel has no command line"),
            (Self::Policy, System::Linux | System::Alone) => {
                Some("policies are those of Memwright's kernel")
            }
            (
                Self::Hugetlb | Self::Program | Self::Swap | Self::Thp | Self::ThpSize,
                System::Alone,
            ) => Some("this kernel is not Linux: it runs no program, and reads no options"),
            (
                Self::Append
                | Self::Cpus
                | Self::Hugetlb
                | Self::Memory
                | Self::Numa
                | Self::Policy
                | Self::Program
                | Self::Swap
                | Self::Thp
                | Self::ThpSize,
                System::Linux | System::Memwright,
            )
            | (Self::Append | Self::Cpus | Self::Memory | Self::Numa, System::Alone) => None,
        }
    }
}

/// The names of the keys. All of them except `program` are also options of the command line.
pub const KEYS: [(&str, Key); 10] = [
    ("append", Key::Append),
    ("cpus", Key::Cpus),
    ("hugetlb", Key::Hugetlb),
    ("memory", Key::Memory),
    ("numa", Key::Numa),
    ("policy", Key::Policy),
    (PROGRAM, Key::Program),
    ("swap", Key::Swap),
    ("thp", Key::Thp),
    ("thp-size", Key::ThpSize),
];
/// The key that selects a different program.
pub const PROGRAM: &str = "program";

impl fmt::Display for Change {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = KEYS.iter().find(|(_, key)| *key == self.key);
        write!(
            formatter,
            "{}={}",
            name.map_or("", |(name, _)| name),
            self.value
        )
    }
}

impl Change {
    /// Applies the change.
    ///
    /// # Errors
    /// The reason why the value is invalid.
    pub fn apply(&self, setup: &mut Setup) -> Result<(), String> {
        let value = self.value.as_str();
        match self.key {
            Key::Append => setup.append.push(value.to_owned()),
            Key::Cpus => setup.cpus = parse_cpus(value)?,
            Key::Hugetlb => setup.hugetlb = Some(parse_huge_pages(value)?),
            Key::Memory => setup.memory = parse_memory_size(value)?,
            Key::Numa => setup.numa = parse_nodes(value)?,
            Key::Policy => setup.policies.push(parse_policy(value)?),
            Key::Program => match setup.command.first_mut() {
                Some(program) if !value.is_empty() => *program = OsString::from(value),
                Some(_) | None => return Err("expected a path".to_owned()),
            },
            Key::Swap => setup.swap = vec![parse_swap(value)?],
            Key::Thp => {
                if !matches!(value, "always" | "madvise" | "never") {
                    return Err("expected always, madvise or never".to_owned());
                }
                value.clone_into(&mut setup.thp);
            }
            Key::ThpSize => setup.thp_sizes.push(parse_thp_size(value)?),
        }
        let by_nodes = match self.key {
            Key::Memory => setup.numa.memory().is_some(),
            Key::Cpus => setup.numa.cpus().is_some(),
            Key::Append
            | Key::Hugetlb
            | Key::Numa
            | Key::Policy
            | Key::Program
            | Key::Swap
            | Key::Thp
            | Key::ThpSize => false,
        };
        match by_nodes {
            true => Err("the nodes say how much there is of it".to_owned()),
            false => Ok(()),
        }
    }
}

/// Returns the default name of a column, which consists of the image and the changes.
pub fn derived_name(image: &str, changes: &[Change]) -> String {
    let changes: Vec<String> = changes.iter().map(ToString::to_string).collect();
    format!("{image} {}", changes.join(" "))
}

/// Returns whether a column's name is the name of its image, or was built from that name by [`derived_name`].
pub fn is_derived(name: &str, image: &str) -> bool {
    let rest = name.strip_prefix(image);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
}

/// Returns whether a column can change this option.
pub fn can_change(option: &str) -> bool {
    KEYS.iter().any(|(name, _)| *name == option)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_derived_name_is_told_from_a_given_one() {
        let change = |key, value: &str| Change {
            key,
            value: value.to_owned(),
        };
        let changes = [change(Key::Thp, "never"), change(Key::Memory, "1G")];
        assert_eq!(derived_name("k", &changes), "k thp=never memory=1G");
        assert!(is_derived("k", "k") && is_derived("k thp=never", "k"));
        assert!(!is_derived("kernel", "k") && !is_derived("after", "k"));
    }
}
