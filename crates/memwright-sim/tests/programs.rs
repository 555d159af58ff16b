//! Tests that compare the memory manager with the model after every step of random scripts.
//!
//! A failure prints a short script that fails. The cases and seeds are fixed, so each run has the same result. To search
//! further, run `cargo xtask fuzz --against model`, which saves scripts that fail. A script that found a bug stays in
//! `scripts` of the test kit, and a test here replays it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use memwright::{Row, SharedMode};
use memwright_sim::programs::{self, Lockstep};
use memwright_sim::{Adversary, Arch, MachineOptions, RightsMiss};
use memwright_table::Architecture;
use memwright_testkit::HostSwap;
use memwright_testkit::chance::Chance;
use memwright_testkit::generate;
use memwright_testkit::judge::{judge, shorten};
use memwright_testkit::lockstep::{Difference, Successes};
use memwright_testkit::script::{Action, Scale, Script, Step, What};

/// In the first tier of tests, `cargo xtask test`, only one in this number of scripts runs.
const FIRST_TIER: usize = 8;

/// The number of attempts to shorten a script that fails.
const ATTEMPTS: usize = 2_000;

fn in_first_tier() -> bool {
    std::env::var("MEMWRIGHT_TIER").is_ok_and(|tier| tier == "test")
}

/// A function that generates a script of about this number of steps.
type Generate = fn(&mut Chance, usize) -> Script;

/// Runs `cases` scripts, or in the first tier one of every `FIRST_TIER`. Returns the number of successful steps of each
/// kind.
fn compare(
    seed: u64,
    cases: u64,
    (generate, steps): (Generate, usize),
    start: impl Fn(&Script) -> Lockstep,
) -> Successes {
    let mut successes = Successes::new();
    each_script(seed, cases, (generate, steps), |script| {
        for (what, count) in judge(|| start(script), script)? {
            *successes.entry(what).or_default() += count;
        }
        Ok(())
    });
    successes
}

/// Calls `judge` with `cases` scripts, or in the first tier with one of every `FIRST_TIER`.
///
/// # Panics
/// If `judge` returns an error. The message contains the error, and a short script for which `judge` returns it.
fn each_script(
    seed: u64,
    cases: u64,
    (generate, steps): (Generate, usize),
    mut judge: impl FnMut(&Script) -> Result<(), Difference>,
) {
    let every = if in_first_tier() { FIRST_TIER } else { 1 };
    for number in (0..cases).step_by(every) {
        let script = generate(&mut Chance::new((seed << 32) + number), steps);
        if let Err(difference) = judge(&script) {
            let (script, difference) = shorten(script, difference, ATTEMPTS, &mut judge);
            panic!("{difference}\n{script:?}");
        }
    }
}

#[test]
fn programs_see_what_the_model_says() {
    let successes = compare(1, 700, (generate::script, 60), |_| {
        programs::lockstep(machine(), None)
    });
    let often = [
        "map",
        "unmap",
        "protect",
        "resize",
        "move",
        "advise",
        "fork",
        "exit",
        "read",
        "write",
        "fetch",
        "read file",
        "write file",
        "truncate",
        "punch",
        "clean",
        "watch",
        "unwatch",
        "write-protect",
        "scan",
        "clear soft-dirty",
        "collapse refused",
        "kernel read",
        "kernel write",
        "transfer",
        "fill",
        "fill refused",
        "fill of a missing page",
        "relocate",
        "reclaim",
        "read-write-protect",
        "end read-write protection",
        "count accesses",
        "make accesses wait",
        "scan accessed",
    ];
    expect(&successes, &often, 10);
}

#[test]
fn programs_see_it_where_forks_share_page_tables() {
    let successes = compare(7, 300, (generate::script, 60), |script| {
        let seed = script.0.len() as u64;
        let adversary = (seed % 3 == 0).then(|| Adversary::with_appetite(seed, 1, 1));
        let lockstep = programs::lockstep(machine(), adversary);
        let lockstep = lockstep.with_swap(Arc::new(HostSwap::new(64)));
        let policy = lockstep.host().memory().policy();
        policy.set("fork", "1").expect("a known policy");
        lockstep
    });
    if !Arch::SHARES_TABLES {
        assert_eq!(successes.get("share tables"), Some(&0));
        return;
    }
    expect(
        &successes,
        &["share tables", "copy tables", "take tables over"],
        10,
    );
}

/// Returns the steps of `script` that do not choose pages by accessed bits, because accessed bits differ if tables are
/// shared. If `private` is true, all memory is private and anonymous, and not registered with a userfaultfd, so that
/// most tables can be shared.
fn comparable(script: &Script, private: bool) -> Script {
    let steps = script.0.iter().filter(|step| match step.action {
        Action::Reclaim | Action::Merge => false,
        Action::Watch(..) => !private,
        _ => true,
    });
    let mut steps: Vec<Step> = steps.copied().collect();
    for step in &mut steps {
        if let Action::Map(_, _, what, _) = &mut step.action {
            if private {
                *what = What::Anonymous;
            }
        }
    }
    Script(steps)
}

/// Except for the accessed bits, programs read the same information about memory whether forks copy page tables or
/// share them.
#[test]
fn programs_read_the_same_whether_forks_copy_or_share() {
    let mut shared = 0;
    each_script(8, 300, (generate::script, 60), |script| {
        let script = comparable(script, script.0.len() % 4 != 0);
        let seen = ["copy", "1"].map(|way| {
            let lockstep =
                programs::lockstep(machine(), None).with_swap(Arc::new(HostSwap::new(64)));
            let memory = Arc::clone(lockstep.host().memory());
            memory.policy().set("fork", way).expect("a known policy");
            let seen = lockstep.run_and_see(&script);
            (seen, memory.account().count(Row::TablesShared))
        });
        let [(by_copying, _), (by_sharing, tables)] = seen;
        shared += tables;
        if by_copying == by_sharing {
            return Ok(());
        }
        Err(Difference::Disagreement(format!(
            "fork=copy: {by_copying:?}\nfork=1: {by_sharing:?}"
        )))
    });
    if Arch::SHARES_TABLES {
        assert!(in_first_tier() || shared > 100, "{shared} tables");
    } else {
        assert_eq!(shared, 0);
    }
}

#[test]
fn programs_see_it_while_the_hardware_caches_what_it_may() {
    compare(2, 100, (generate::script, 30), |script| {
        let adversary = Adversary::with_appetite(script.0.len() as u64, 1, 1);
        programs::lockstep(machine(), Some(adversary))
    });
}

#[test]
fn programs_see_it_where_a_rights_miss_walks_again() {
    let machine = MachineOptions {
        rights_miss: RightsMiss::Walks,
        ..machine()
    };
    compare(3, 150, (generate::script, 40), |script| {
        let lockstep = programs::lockstep(machine, None);
        let upgrade = ["off", "dirty", "on"][script.0.len() % 3];
        let policy = lockstep.host().memory().policy();
        policy
            .set("write-upgrade", upgrade)
            .expect("a known policy");
        lockstep
    });
}

/// Programs cannot observe that huge pages are allocated wherever they fit, are split, and are collapsed.
#[test]
fn programs_see_it_while_memory_is_mapped_in_huge_pages() {
    let successes = compare(4, 60, (generate::collapsing, 40), |script| {
        huge(machine(), THP[script.0.len() % THP.len()])
    });
    expect(&successes, &["collapse"], 10);
}

/// Programs cannot observe that memory is allocated and swapped out in folios of four or eight pages, and that folios
/// are split.
#[test]
fn programs_see_it_while_memory_comes_in_folios() {
    let successes = compare(7, 300, (generate::splitting, 60), |script| {
        swapping(machine(), 64).in_folios(FOLIOS[script.0.len() % FOLIOS.len()])
    });
    expect(&successes, &["split", "page that left"], 10);
}

/// Programs cannot observe that pages on two nodes are swapped out and in, and that equal pages are merged. They can
/// observe that pages freed by `MADV_FREE` are discarded.
#[test]
fn programs_see_it_while_pages_leave_move_and_merge() {
    let successes = compare(5, 400, (generate::freeing, 60), |_| {
        swapping(two_nodes(machine()), 64)
    });
    let often = [
        "swap on",
        "swap off",
        "page that left",
        "page that is merged",
        "bind",
        "migrate",
        "hint",
    ];
    expect(&successes, &often, 3);
}

/// Programs cannot observe that pages are swapped out because memory is short.
#[test]
fn programs_see_it_while_memory_is_short() {
    let successes = compare(6, 300, (generate::script, 80), |_| short());
    expect(&successes, &["relief", "page that left"], 10);
    let ends = successes.get("out of memory").copied().unwrap_or_default();
    assert!(ends < 20, "{successes:?}");
}

fn machine() -> MachineOptions {
    MachineOptions {
        frames: 512,
        ..MachineOptions::default()
    }
}

/// Checks that each of these steps succeeded at least `least` times: a test that never reaches a case proves nothing.
/// Checks nothing in the first tier, which runs too few scripts to reach every case.
fn expect(successes: &Successes, often: &[&str], least: u64) {
    if in_first_tier() {
        return;
    }
    for what in often {
        let count = successes.get(what).copied().unwrap_or_default();
        assert!(count >= least, "{what}: {successes:?}");
    }
}

/// The policies for huge pages on first access. With "never", only a collapse creates huge pages.
const THP: [&str; 3] = ["always", "never", "madvise"];

/// Creates a machine on which a place of a script is one eighth of a huge page.
fn huge(options: MachineOptions, thp: &str) -> Lockstep {
    let options = MachineOptions {
        frames: 16_384,
        ..options
    };
    let lockstep = swapping(options, 8192).scaled(Scale(64));
    let memory = lockstep.host().memory();
    memory.policy().set("thp", thp).expect("a policy");
    let shared = SharedMode::ALL.iter().find(|(_, name)| *name == thp);
    let mode = shared.map_or(SharedMode::Advised, |(mode, _)| *mode);
    memory.huge().set_shared_mode(mode);
    lockstep
}

/// Sets of folio orders that fit into the places of a script.
const FOLIOS: [&[u8]; 3] = [&[2], &[3], &[2, 3]];

fn two_nodes(options: MachineOptions) -> MachineOptions {
    MachineOptions {
        nodes: 2,
        ..options
    }
}

fn swapping(options: MachineOptions, slots: u32) -> Lockstep {
    programs::lockstep(options, None).with_swap(Arc::new(HostSwap::new(slots)))
}

/// Creates a machine with less memory than scripts need.
fn short() -> Lockstep {
    let options = MachineOptions {
        frames: SHORT_FRAMES,
        ..machine()
    };
    swapping(options, 128).reclaiming()
}

/// The number of frames of a machine that must reclaim to run a script. About 16 page tables exist at a time.
const SHORT_FRAMES: u32 = 32 + 16 * Arch::TABLE_FRAMES;

/// Returns the setup with number `way` for a script: the machine, the behaviour of its hardware, and the policies.
fn start(way: u64, seed: u64) -> Lockstep {
    let options = MachineOptions {
        cpus: 1 + (way % 4) as usize,
        rights_miss: if way % 3 == 0 {
            RightsMiss::Walks
        } else {
            RightsMiss::Faults
        },
        tags: if way % 5 == 0 { 3 } else { 0 },
        nodes: if way % 4 == 1 { 2 } else { 1 },
        ..machine()
    };
    let adversary = (way % 4 == 3).then(|| Adversary::with_appetite(seed, 1, 1));
    let device = Arc::new(HostSwap::new([64, 16][(way / 3 % 2) as usize]));
    if way % 6 == 1 {
        device.defer(4);
    }
    let folios = FOLIOS[(way / 8) as usize % FOLIOS.len()];
    let lockstep = match way % 8 {
        _ if is_huge(way) => huge(options, THP[(way / HUGE_EVERY) as usize % THP.len()]),
        // Setups with these numbers have no swap device.
        0 => programs::lockstep(options, adversary),
        5 => {
            let frames = SHORT_FRAMES;
            let options = MachineOptions { frames, ..options };
            let lockstep = programs::lockstep(options, adversary).in_folios(folios);
            lockstep.with_swap(device).reclaiming()
        }
        6 => {
            let lockstep = programs::lockstep(options, adversary).in_folios(folios);
            lockstep.with_swap(device)
        }
        _ => programs::lockstep(options, adversary).with_swap(device),
    };
    let memory = lockstep.host().memory();
    let zeroes = &memory.merging().settings().zero_pages;
    zeroes.store(way % 7 == 0, Ordering::Relaxed);
    for (name, values, turn) in [
        ("write-upgrade", &["on", "on", "off", "dirty"][..], way / 4),
        ("track", &["dirty-bit", "fault"], way / 2),
        ("swapin-reuse", &["on", "write-only"], way / 5),
        ("swapin-around", &["on", "off"], way / 7),
        ("fork", &["copy", "1"], way / 3),
    ] {
        let value = values[turn as usize % values.len()];
        memory.policy().set(name, value).expect("a known policy");
    }
    lockstep
}

/// One in this number of setups has huge pages. Only a few setups have them, because setups with huge pages take the
/// longest.
const HUGE_EVERY: u64 = 48;

fn is_huge(way: u64) -> bool {
    way % HUGE_EVERY == HUGE_EVERY - 1
}

/// The number of setups.
const WAYS: u64 = 240;

/// Replays every saved script. A script whose file has the line [`HUGE`] runs with each huge-page policy. Any other
/// script runs in the first 16 setups and in the setups that its file names.
#[test]
fn kept_scripts_agree() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../memwright-testkit/scripts");
    let mut paths: Vec<PathBuf> = std::fs::read_dir(&folder)
        .expect("the kept scripts")
        .map(|entry| entry.expect("readable").path())
        .collect();
    paths.sort();
    assert!(!paths.is_empty());
    for path in paths {
        replay(&path);
    }
}

/// A line that marks a script whose places are parts of huge pages.
const HUGE: &str = "# huge";

/// The start of a line with the number of a setup in which the script also runs, in addition to the first 16 setups.
const WAY: &str = "# way ";

fn replay(path: &Path) {
    let text = std::fs::read_to_string(path).expect("a script");
    let script: Script = text.parse().expect("a script");
    if text.lines().any(|line| line == HUGE) {
        for thp in THP {
            if let Err(difference) = judge(|| huge(machine(), thp), &script) {
                panic!("{}, {thp}: {difference}", path.display());
            }
        }
        return;
    }
    // The file names the setups in which the script found a bug, if they are not among the first ones.
    let named = text.lines().filter_map(|line| {
        let number = line.strip_prefix(WAY)?.split(':').next()?;
        number.trim().parse().ok()
    });
    for way in (0..16).chain(named) {
        if let Err(difference) = judge(|| start(way, way), &script) {
            panic!("{}, way {way}: {difference}", path.display());
        }
    }
}

#[test]
fn a_script_is_read_as_it_is_printed() {
    for seed in 0..50 {
        let printed = format!("{:?}", generate::script(&mut Chance::new(seed), 60));
        let read: Script = printed.parse().expect("readable");
        assert_eq!(format!("{read:?}"), printed);
    }
}

/// The counts of `cargo xtask fuzz --against model`.
#[derive(Default)]
struct Tally {
    scripts: u64,
    steps: u64,
    pairs: BTreeSet<(String, String)>,
    names: BTreeSet<String>,
    failures: u64,
}

impl Tally {
    fn count(&mut self, script: &Script) {
        self.scripts += 1;
        self.steps += script.0.len() as u64;
        let name = |step: &memwright_testkit::script::Step| {
            let printed = format!("{:?}", step.action);
            let mut words = printed.split(' ');
            let first = words.next().unwrap_or_default();
            // The first two words of an operation are its kind: "read page" and "read file" are two kinds, and each
            // advice is a kind. Places, numbers and rights are not part of the kind.
            let second = words.find(|word| word.chars().all(char::is_alphabetic));
            [first, second.unwrap_or_default()].join(" ")
        };
        let names: Vec<String> = script.0.iter().map(name).collect();
        for pair in names.windows(2) {
            self.pairs.insert((pair[0].clone(), pair[1].clone()));
        }
        self.names.extend(names);
    }

    fn print(&self) {
        println!(
            "{} scripts, {} operations, {} of {} pairs of {} operations, {} differences",
            self.scripts,
            self.steps,
            self.pairs.len(),
            self.names.len() * self.names.len(),
            self.names.len(),
            self.failures
        );
    }
}

/// The limit of one thread's search: a point in time, or a number of operations. Each thread counts its own operations,
/// so that a seed gives the same scripts however the threads are scheduled.
#[derive(Clone, Copy)]
struct End {
    at: Option<Instant>,
    operations: Option<u64>,
}

impl End {
    fn is_reached(self, done: u64) -> bool {
        self.at.is_some_and(|at| Instant::now() >= at)
            || self.operations.is_some_and(|operations| done >= operations)
    }
}

/// Runs the search of one thread until `end`. Shrinks a failing script and saves it in `folder`.
fn search(stream: u64, end: End, folder: &Path, tally: &Mutex<Tally>) {
    let mut shown = Instant::now();
    let mut done = 0;
    for number in 0.. {
        let script = generate::script(&mut Chance::new((stream << 32) + number), 80);
        let way = number % WAYS;
        let run = |script: &Script| judge(|| start(way, number), script).map(drop);
        let found = run(&script).err();
        if let Some(difference) = found.clone() {
            let (short, difference) = shorten(script.clone(), difference, ATTEMPTS, run);
            let name = format!("model-{stream}-{number}.script");
            let scale = if is_huge(way) { HUGE } else { "#" };
            let text = format!("{scale}\n# way {way}: {difference}\n{short:?}");
            println!("difference, kept as {name}:\n{text}");
            std::fs::write(folder.join(name), text).expect("kept");
        }
        let mut tally = tally.lock().expect("no panic");
        done += script.0.len() as u64;
        tally.count(&script);
        tally.failures += u64::from(found.is_some());
        if shown.elapsed() > Duration::from_secs(30) {
            shown = Instant::now();
            tally.print();
        }
        if end.is_reached(done) {
            return;
        }
    }
}

/// The number of threads that search. Each thread runs different scripts.
const THREADS: u64 = 2;

/// The search of `cargo xtask fuzz --against model`. Environment variables give a number of minutes or operations and a
/// seed, or one script to run.
#[test]
#[ignore = "takes as long as it is told to"]
fn as_long_as_asked() {
    if let Some(path) = std::env::var_os("MEMWRIGHT_SCRIPT") {
        return replay(Path::new(&path));
    }
    let number = |name| std::env::var(name).ok()?.parse::<f64>().ok();
    let operations = number("MEMWRIGHT_OPERATIONS").map(|operations| operations as u64);
    let minutes = number("MEMWRIGHT_MINUTES").or(operations.is_none().then_some(1.0));
    let seed = number("MEMWRIGHT_SEED").unwrap_or(1.0) as u64;
    let folder = std::env::var_os("MEMWRIGHT_FOLDER").expect("a folder for scripts that fail");
    let start = Instant::now();
    let end = End {
        at: minutes.map(|minutes| start + Duration::from_secs_f64(minutes * 60.0)),
        operations: operations.map(|operations| operations.div_ceil(THREADS)),
    };
    let tally = Mutex::new(Tally::default());
    std::panic::set_hook(Box::new(|_| {}));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (folder, tally) = (Path::new(&folder), &tally);
            scope.spawn(move || search(seed * 1000 + thread, end, folder, tally));
        }
    });
    let _ = std::panic::take_hook();
    let tally = tally.into_inner().expect("no panic");
    tally.print();
    println!("{:.0} seconds", start.elapsed().as_secs_f64());
    assert_eq!(tally.failures, 0, "scripts were kept");
}
