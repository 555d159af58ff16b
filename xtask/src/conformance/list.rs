//! The list of tests, with the way in which each is started.

use crate::tier::Tier;
use anyhow::{Context, Result, bail};

/// The file name of the list, in the folder `conformance`.
pub const FILE: &str = "tests.tsv";

/// A test: one way to start a program. A program that is started in several ways has several entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Test {
    /// The name of the test in the lists and columns.
    pub name: String,
    /// The name of the program.
    pub program: String,
    /// The program's arguments.
    pub arguments: Vec<String>,
    /// The user ID of the process.
    pub user: u32,
    /// The memory of the machine, in the format of `memwright run --memory`.
    pub memory: String,
    /// The number of CPUs of the machine.
    pub cpus: u32,
    /// The time limit, in seconds of wall-clock time.
    pub seconds: u32,
    /// The first tier that runs the test.
    pub tier: Tier,
    /// Whether child processes continue after the program has exited (the option `--children` in the list). The run
    /// then waits until all processes that could print have ended.
    pub children: bool,
    /// Whether the test needs files on a disk in /tmp (the option `--disk` in the list). A guest with Linux gets a
    /// disk. On Memwright, all files are in memory.
    pub disk: bool,
    /// Additional options of `memwright run`. `{program}` is replaced by the path of the program.
    pub options: Vec<String>,
}

impl Test {
    /// Parses the list: a heading, then one line for each test, with columns separated by tabs.
    ///
    /// # Errors
    /// If a line has a wrong number of columns or an invalid value.
    pub fn read(text: &str) -> Result<Vec<Self>> {
        let lines = text.lines().skip(1);
        lines
            .map(|line| Self::parse(line).with_context(|| format!("{FILE}: {line}")))
            .collect()
    }

    fn parse(line: &str) -> Result<Self> {
        let columns: Vec<&str> = line.split('\t').collect();
        let [
            name,
            program,
            arguments,
            user,
            memory,
            cpus,
            seconds,
            tier,
            options,
        ] = columns[..]
        else {
            bail!("{} columns, not 9", columns.len());
        };
        let tier = match tier {
            "test" => Tier::Test,
            "ci" => Tier::Ci,
            "full" => Tier::Full,
            _ => bail!("the tier is test, ci or full, not {tier}"),
        };
        let words = |column: &str| match column {
            "-" => Vec::new(),
            words => words.split(' ').map(str::to_owned).collect(),
        };
        let mut options = words(options);
        let mut takes = |wanted: &str| {
            let given = options.len();
            options.retain(|option| option != wanted);
            options.len() < given
        };
        let (children, disk) = (takes("--children"), takes("--disk"));
        Ok(Self {
            name: name.to_owned(),
            program: program.to_owned(),
            arguments: words(arguments),
            user: user.parse()?,
            memory: memory.to_owned(),
            cpus: cpus.parse()?,
            seconds: seconds.parse()?,
            tier,
            children,
            disk,
            options,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_nine_columns() {
        let tests =
            Test::read("heading\nksm_tests_M\tksm_tests\t-M -p 10\t0\t3G\t2\t120\tci\t--swap a\n")
                .unwrap();
        assert_eq!(tests[0].arguments, ["-M", "-p", "10"]);
        assert_eq!(tests[0].options, ["--swap", "a"]);
        assert_eq!((tests[0].cpus, tests[0].tier), (2, Tier::Ci));
        assert!(!tests[0].children && !tests[0].disk);
        let tests =
            Test::read("heading\na\tb\t-\t0\t3G\t2\t9\tfull\t--children --thp always --disk\n")
                .unwrap();
        assert!(tests[0].children && tests[0].disk);
        assert_eq!(tests[0].options, ["--thp", "always"]);
        assert!(Test::read("heading\na\tb\t-\t0\t3G\t2\tsoon\tno\t-\n").is_err());
        assert!(Test::read("heading\na\tb\n").is_err());
    }
}
