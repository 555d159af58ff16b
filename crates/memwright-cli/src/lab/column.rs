//! A column of a comparison: a kernel image, and the options that differ from those of the command.

use std::ffi::OsString;
use std::path::Path;

use anyhow::anyhow;

use crate::lab::image;
use crate::model::change::{Change, KEYS, Key, derived_name};
use crate::model::image::{Image, split_image};
use crate::model::plan::ImagePlan;

/// A kernel image, and the options that have other values in its runs.
#[derive(Debug, Clone)]
pub struct Column {
    /// The image, whose name is also that of the column.
    pub image: Image,
    /// The options whose values differ from those of the command.
    pub changes: Vec<Change>,
}

impl Column {
    /// Parses `[NAME=]IMAGE[,KEY=VALUE]...`, where IMAGE is a path or a name of `memwright kernels`. Without NAME, the
    /// column is named after the image and the changes.
    ///
    /// # Errors
    /// One line if there is no such image, if the file is not a kernel image, if a key is unknown, or if the image does
    /// not have the option. [`Column::plan`] checks the values.
    pub fn open(text: &str) -> anyhow::Result<Self> {
        let (named, changes) = split(text)?;
        let mut opened = image::open(named)?;
        for change in &changes {
            if let Some(why) = change.key.is_refused_by(opened.system) {
                return Err(anyhow!("--kernel {text}: {why}"));
            }
        }
        if !changes.is_empty() && split_image(named).0.is_none() {
            opened.name = derived_name(&opened.name, &changes);
        }
        Ok(Self {
            image: opened,
            changes,
        })
    }

    /// Returns the plan of this column: the command's plan with the column's options.
    ///
    /// # Errors
    /// If an option rejects the value of a change.
    pub fn plan(&self, common: &ImagePlan) -> anyhow::Result<ImagePlan> {
        let mut plan = common.clone();
        for change in &self.changes {
            change
                .apply(&mut plan.setup)
                .map_err(|why| anyhow!("--kernel IMAGE,{change}: {why}"))?;
        }
        Ok(plan)
    }

    /// Returns a copy of this column with `words` added to the kernel's command line and to the column's name.
    #[must_use]
    pub fn with(&self, words: &str) -> Self {
        let mut more = self.clone();
        more.image.name = format!("{} {words}", self.image.name);
        more.changes.push(Change {
            key: Key::Append,
            value: words.to_owned(),
        });
        more
    }

    /// Returns the words that the column adds to the kernel's command line; `None` if the column also changes another
    /// option.
    pub fn appended(&self) -> Option<String> {
        let words = self.changes.iter().map(|change| match change.key {
            Key::Append => Some(change.value.as_str()),
            Key::Cpus
            | Key::Hugetlb
            | Key::Memory
            | Key::Numa
            | Key::Policy
            | Key::Program
            | Key::Swap
            | Key::Thp
            | Key::ThpSize => None,
        });
        words
            .collect::<Option<Vec<_>>>()
            .map(|words| words.join(" "))
    }
}

/// Returns the program that a column runs instead of the command's; `None` if the column does not change the program.
/// Also `None` if the column is invalid, which [`Column::open`] reports.
pub fn other_program(text: &str) -> Option<OsString> {
    let (_, changes) = split(text).ok()?;
    let mut programs = changes.into_iter().filter(|one| one.key == Key::Program);
    programs.next_back().map(|one| OsString::from(one.value))
}

/// Returns the image of a column as it is given; `None` if the column is invalid, which [`Column::open`] reports.
pub fn image_of(text: &str) -> Option<&str> {
    let (named, _) = split(text).ok()?;
    Some(split_image(named).1)
}

/// Splits `[NAME=]IMAGE[,KEY=VALUE]...`. A comma that is not followed by `KEY=` belongs to the image or the value.
fn split(text: &str) -> anyhow::Result<(&str, Vec<Change>)> {
    let named = text.split_once('=').filter(|(name, _)| !name.contains(','));
    let path = named.map_or(text, |(_, path)| path);
    if Path::new(text).exists() || Path::new(path).exists() {
        return Ok((text, Vec::new()));
    }
    let is_key = |rest: &str| {
        let key = rest.split_once('=').map(|(key, _)| key);
        let letter = |byte: u8| byte.is_ascii_lowercase() || byte == b'-';
        key.is_some_and(|key| !key.is_empty() && key.bytes().all(letter))
    };
    let commas = text.match_indices(',').map(|(at, _)| at);
    let begins: Vec<usize> = commas.filter(|at| is_key(&text[at + 1..])).collect();
    let end = begins.first().copied().unwrap_or(text.len());
    let ends = begins.iter().skip(1).copied().chain([text.len()]);
    let changes = begins.iter().zip(ends).map(|(begin, end)| {
        let (key, value) = text[begin + 1..end].split_once('=').unwrap_or_default();
        let known = KEYS.iter().find(|(name, _)| *name == key);
        let (_, key) = known.ok_or_else(|| {
            let names: Vec<&str> = KEYS.iter().map(|(name, _)| *name).collect();
            anyhow!(
                "--kernel {text}: a column has no {key}; it has {}",
                names.join(", ")
            )
        })?;
        Ok(Change {
            key: *key,
            value: value.to_owned(),
        })
    });
    Ok((&text[..end], changes.collect::<anyhow::Result<_>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::code::Code;
    use crate::model::image::System;
    use crate::model::plan::tests::setup;
    use crate::model::plan::{Care, Measure, Setup};

    fn changed(options: &str, changes: &str) -> anyhow::Result<Setup> {
        let image = Image {
            system: System::Linux,
            name: "k".to_owned(),
            path: "/k".into(),
            sha256: String::new(),
            config_sha256: None,
            version: String::new(),
            code: Code::default(),
        };
        let plan = ImagePlan {
            setup: setup(options),
            care: Care {
                timeout: None,
                keep: None,
                verbose: false,
            },
            measure: Measure::Events,
            verify: true,
            cold: false,
        };
        let (_, changes) = split(&format!("k{changes}"))?;
        Ok(Column { image, changes }.plan(&plan)?.setup)
    }

    #[test]
    fn columns_come_apart() {
        for (text, image, changes) in [
            ("k", "k", vec![]),
            ("n=k", "n=k", vec![]),
            ("n=/a,b/k", "n=/a,b/k", vec![]),
            ("n=k,thp=always", "n=k", vec!["thp=always"]),
            ("k,program=/", "k", vec!["program=/"]),
            (
                "debian:trixie,append=console=ttyS0,115200,memory=1G",
                "debian:trixie",
                vec!["append=console=ttyS0,115200", "memory=1G"],
            ),
            ("k,append=a,append=b=1", "k", vec!["append=a", "append=b=1"]),
        ] {
            let (found, apart) = split(text).unwrap();
            let apart: Vec<String> = apart.iter().map(ToString::to_string).collect();
            assert_eq!(
                (found, apart),
                (image, changes.iter().map(ToString::to_string).collect())
            );
        }
        for text in ["k,speed=1", "n=k,thp=always,colour=red"] {
            let error = split(text).unwrap_err().to_string();
            assert!(error.contains("it has append, cpus, hugetlb"), "{error}");
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("k,thp=always");
        std::fs::write(&path, "").unwrap();
        for text in [
            format!("{}", path.display()),
            format!("n={}", path.display()),
        ] {
            assert_eq!(split(&text).unwrap(), (text.as_str(), Vec::new()));
        }
    }

    #[test]
    fn a_column_changes_options() {
        let args = changed(
            "--append quiet --memory 64M",
            ",append=a,memory=1G,cpus=2,thp=never,program=/bin/false,swap=zram:64M,numa=2,hugetlb=2M,thp-size=64K:always",
        )
        .unwrap();
        assert_eq!(args.append, ["quiet", "a"]);
        assert_eq!((args.memory().bytes(), args.cpus()), (1 << 30, 2));
        assert_eq!(
            (args.thp.as_str(), args.numa.to_string()),
            ("never", "2".to_owned())
        );
        assert_eq!(args.command, ["/bin/false"]);
        assert_eq!((args.swap.len(), args.thp_sizes.len()), (1, 1));
        assert!(args.hugetlb.is_some());
        for (options, changes) in [
            ("", ",memory=much"),
            ("", ",cpus=65"),
            ("", ",thp=sometimes"),
            ("", ",swap=floppy:1M"),
            ("", ",program="),
            ("--numa 64M:1,64M:1", ",memory=1G"),
            ("--numa 64M:1,64M:1", ",cpus=1"),
        ] {
            assert!(changed(options, changes).is_err(), "{options} {changes}");
        }
    }

    #[test]
    fn a_column_names_another_program_or_not() {
        for (text, expected) in [
            ("k", None),
            ("k,memory=1G", None),
            ("n=k,program=/a,memory=1G", Some("/a")),
            ("k,program=/a,program=/b", Some("/b")),
            ("k,speed=1,program=/a", None),
        ] {
            assert_eq!(other_program(text), expected.map(OsString::from), "{text}");
        }
    }
}
