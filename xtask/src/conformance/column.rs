//! A column: the results of all tests on one Linux kernel. It is a file in the folder `conformance`.

use super::matching::{self, Label};
use super::tap::{Ending, Subtest};
use anyhow::{Context, Result, bail};

/// The prefix of the first line. The text of [`Column::kernel`] follows the prefix.
const KERNEL: &str = "# ";
/// The second line: the heading.
const HEADING: &str = "test\tnumber\tresult\tname";

/// The results of all tests on one Linux kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// The version text of the kernel, and the version of the tests.
    pub kernel: String,
    /// The subtests, each with the name of its test.
    pub entries: Vec<(String, Subtest)>,
}

/// Returns the name of the file with the column of a kernel series, such as `linux-7.3.tsv`.
pub fn file(series: &str) -> String {
    format!("linux-{series}.tsv")
}

impl Column {
    /// Parses the text of a file: the kernel, the heading, and one line for each subtest, with columns separated by
    /// tabs.
    ///
    /// # Errors
    /// If a line is invalid.
    pub fn read(text: &str) -> Result<Self> {
        let mut lines = text.lines();
        let kernel = lines.next().and_then(|line| line.strip_prefix(KERNEL));
        let kernel = kernel.context("the first line is not the kernel")?;
        if lines.next() != Some(HEADING) {
            bail!("the second line is not the heading");
        }
        let entry = |line: &str| {
            let parts: Vec<&str> = line.split('\t').collect();
            let [test, number, result, name] = parts[..] else {
                bail!("{} parts, not 4: {line}", parts.len());
            };
            let subtest = Subtest {
                number: number.parse().with_context(|| line.to_owned())?,
                name: name.to_owned(),
                ending: Ending::of(result).with_context(|| format!("no result: {line}"))?,
            };
            Ok((test.to_owned(), subtest))
        };
        Ok(Self {
            kernel: kernel.to_owned(),
            entries: lines.map(entry).collect::<Result<_>>()?,
        })
    }

    /// Returns the text of the file.
    pub fn text(&self) -> String {
        let mut text = format!("{KERNEL}{}\n{HEADING}\n", self.kernel);
        for (test, subtest) in &self.entries {
            let Subtest {
                number,
                name,
                ending,
            } = subtest;
            text.push_str(&format!("{test}\t{number}\t{}\t{name}\n", ending.word()));
        }
        text
    }

    /// Returns the subtests of one test, in order.
    pub fn of(&self, test: &str) -> Vec<&Subtest> {
        let entries = self.entries.iter().filter(|(name, _)| name == test);
        entries.map(|(_, subtest)| subtest).collect()
    }

    /// Returns the ending of each of these subtests of a test; `None` for a subtest that did not run on the kernel.
    pub fn endings(&self, test: &str, labels: &[Label<'_>]) -> Vec<Option<Ending>> {
        let of_test = self.of(test);
        let others: Vec<Label<'_>> = of_test.iter().map(|subtest| subtest.label()).collect();
        let found = matching::matches(labels, &others).into_iter();
        found.map(|at| at.map(|at| of_test[at].ending)).collect()
    }

    /// Replaces the subtests of a test, and sorts the entries in the order of `tests`.
    pub fn replace(&mut self, test: &str, subtests: Vec<Subtest>, tests: &[&str]) {
        self.entries.retain(|(name, _)| name != test);
        let new = subtests.into_iter();
        self.entries
            .extend(new.map(|subtest| (test.to_owned(), subtest)));
        let place = |name: &str| tests.iter().position(|test| *test == name);
        self.entries.sort_by_key(|(name, _)| place(name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# Linux 7.3.4 #1 SMP\ntest\tnumber\tresult\tname\n\
        a\t1\tpass\tone\na\t2\txfail\t\nb\t1\tskip\tx\nb\t2\tfail\ty\n";

    #[test]
    fn a_column_is_written_as_it_is_read() {
        let column = Column::read(TEXT).unwrap();
        assert_eq!(column.kernel, "Linux 7.3.4 #1 SMP");
        let endings: Vec<Ending> = column.entries.iter().map(|(_, one)| one.ending).collect();
        assert_eq!(endings, Ending::ALL);
        assert_eq!(column.text(), TEXT);
    }

    #[test]
    fn what_is_no_column_is_refused() {
        for (old, new) in [
            ("# Linux", "Linux"),
            ("result", "reference"),
            ("\t2\tfail", "\ttwo\tfail"),
            ("\txfail\t", "\tpassed\t"),
            ("\tskip\tx", "\tskip"),
        ] {
            assert!(Column::read(&TEXT.replacen(old, new, 1)).is_err(), "{new}");
        }
        assert!(Column::read("").is_err());
    }

    #[test]
    fn a_test_that_ran_again_replaces_its_lines_alone() {
        let mut column = Column::read(TEXT).unwrap();
        let subtest = Subtest {
            number: 1,
            name: String::new(),
            ending: Ending::Failed,
        };
        column.replace("a", vec![subtest.clone()], &["a", "c", "b"]);
        column.replace("c", vec![subtest], &["a", "c", "b"]);
        let expected = TEXT.replace(
            "a\t1\tpass\tone\na\t2\txfail\t\n",
            "a\t1\tfail\t\nc\t1\tfail\t\n",
        );
        assert_eq!(column.text(), expected);
    }

    #[test]
    fn a_subtest_that_a_kernel_did_not_run_has_no_ending() {
        let column = Column::read(TEXT).unwrap();
        let labels = [(1, "y"), (2, "z"), (3, "x")];
        let endings = [Some(Ending::Failed), None, Some(Ending::Skipped)];
        assert_eq!(column.endings("b", &labels), endings);
        assert_eq!(column.endings("c", &labels), [None; 3]);
    }
}
