//! The texts that the help of each command prints after its options.

/// The text after the help of `run`.
pub const AFTER_HELP: &str = "\
Exit codes:
  0 to 123  PROGRAM's exit code (larger codes may also be PROGRAM's own)
  124       --timeout expired
  125       Memwright failed: usage, QEMU missing or too old, kernel panic, no result
  126       PROGRAM cannot be executed
  127       PROGRAM was not found
  128 + N   signal N killed PROGRAM

Environment:
  MEMWRIGHT_QEMU    QEMU to use instead of qemu-system-x86_64 (7.2 or later; 10.0 or later for
                    several CPUs without --parallel); \"backports\" is the newer one of Debian's
                    backports, unpacked to a private cache, which is also used for several CPUs
                    if qemu-system-x86_64 is older
  MEMWRIGHT_KERNEL  kernel image of Memwright to use instead of the embedded one
  NO_COLOR          plain text even on a terminal

Examples:
  memwright run /bin/busybox sh -c 'echo hello'
  memwright run --file notes.txt:/notes.txt /usr/bin/sort /notes.txt
  seq 1000 | memwright run --json account.json /usr/bin/sha256sum
  memwright run --memory 64M --trace events.jsonl ./program
  memwright run --cpus 4 --timeout 60 ./threads
  memwright run --kernel ./bzImage ./program";

/// Expands to the help text about the exit codes of a command that finds differences. The argument is the meaning of
/// code 1.
macro_rules! codes {
    ($difference:literal) => {
        concat!(
            "\
Exit codes:
  0   ok
  1   difference: ",
            $difference,
            "
  2   usage, including a PROGRAM that is missing or cannot be executed
  3   a tool is missing: QEMU, a C compiler (see memwright doctor)
  4   skipped: no claim is possible, because a run does not repeat or runs are not comparable
  5   a guest crashed or timed out
  6   the program ended differently, or its output differs
  7   not the same state: the program's memory was mapped differently, or its marks differ
  70  internal error
If there are several differences, the code is the first of 4, 6, 7, 1."
        )
    };
}

/// The text after the help of `compare` and `report`.
pub const CODES_HELP: &str = codes!("a count changed");

/// The text after the help of `check`.
pub const CHECK_HELP: &str = concat!(
    codes!("a count changed, or exceeds its limit"),
    "

Exit codes with --bisect:
  0         good: no limit is exceeded
  1         bad: a limit is exceeded (with --panic bad also: the kernel panicked)
  125       skip: the image is absent, does not boot, or panics
  128 + N   signal N ended the command; this and all codes below stop the bisection
  194       usage
  195       a tool is missing, or QEMU failed
  196       no claim is possible: the counts do not repeat, or are not comparable
  197       --timeout expired
  198       any other error, a full disk for example

Examples:
  memwright check --baseline base.json --vary kernel --kernel ./bzImage ./program
  memwright check --limit run.user_faults.write_protect=0 --kernel ./bzImage ./program
  git bisect run sh -c 'rm -f bzImage; make bzImage; memwright check --bisect --limit run.invlpg=9 --kernel ./bzImage ./prog'"
);

/// The text after the help of `bench`.
pub const BENCH_HELP: &str = "\
Each experiment is a C program, which is part of the package or is built here with musl-gcc or cc. Every column runs the
same binary on the same machine: 2 GiB, one clock tick for each retired instruction. A measure of many values has a row
each for the minimum, the median and the mean; a ratio compares the statistic of its row. Linux boots with
mitigations=off nokaslr norandmaps randomize_kstack_offset=off.

A workload is a whole program of a Debian package that is installed here, counted from outside like PROGRAM, with 1 GiB
and the files of this machine. Several workloads are the columns of one table, and the kernels its rows.

Every run is made twice, at the same time, and the two are compared.

Exit codes:
  0   every run gave its figures
  1   difference: a second run gave different figures (with --shard, report says so)
  2   usage
  3   a tool is missing: a C compiler (see memwright doctor), the package of a workload
  5   a run gave no figures: the guest crashed or timed out
  70  internal error

Examples:
  memwright bench basics
  memwright bench protect-loop --kernel linux=/boot/vmlinuz
  memwright bench write-after-protect --policy write-upgrade=off --json report.json
  memwright bench sqlite-wal --kernel memwright --kernel debian:trixie --rows 'region.1.*'
  sbatch --array=1-10 --wrap 'memwright bench --plan sweep.toml --shard auto/10 --results results'
  memwright report results";

/// The text after the help of `kernels config`.
pub const CONFIG_HELP: &str = "\
Exit codes:
  0   the configuration has each option that every run needs
  1   it lacks one of them
  2   usage, including a file that is missing or is not a configuration

Examples:
  memwright kernels config > memwright.config
  make KCONFIG_ALLCONFIG=$PWD/memwright.config allnoconfig
  memwright kernels config .config > lacking && scripts/kconfig/merge_config.sh .config lacking";
