//! Runs all saved scripts and many random ones on a machine.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use memwright::SharedMode;
use memwright_table::{Frames, Region};

use crate::chance::Chance;
use crate::generate;
use crate::host_swap::HostSwap;
use crate::judge::{caught, judge, shorten};
use crate::lockstep::{ACCESS, Difference, FAULT, Lockstep, Successes};
use crate::machine::TestMachine;
use crate::preflight;
use crate::process::Host;
use crate::saved::{SAVED, Saved};
use crate::script::{Scale, Script};

/// What a run consists of.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The number of random programs. The default is 200.
    pub programs: u32,
    /// About the number of steps of a random program. The default is 60.
    pub steps: usize,
    /// The seed of the random programs. The default is 1.
    pub seed: u64,
    /// The number of CPUs on which programs run: from 1 to the number of CPUs of the machine, or `usize::MAX` for all of
    /// them, which is the default. Another number is a failure.
    pub cpus: usize,
    /// Whether the machine is checked before the first script: that frames are cleared and copied, that the bytes of a
    /// store are in the frame of the page, that accesses are refused, that invalidations take effect, and that
    /// [`act_as`](TestMachine::act_as) makes the thread act as the given CPU. Each failure names the method that is
    /// wrong. The default is true.
    pub preflight: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            programs: 200,
            steps: 60,
            seed: 1,
            cpus: usize::MAX,
            preflight: true,
        }
    }
}

/// What a run without a failure has done.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The number of scripts and random programs. A script counts once for each setup in which it runs.
    pub scripts: u64,
    /// The number of steps of these scripts and programs.
    pub steps: u64,
    /// The number of loads, stores and fetches that programs attempted.
    pub accesses: u64,
    /// The number of page faults that programs took.
    pub faults: u64,
    /// How often each kind of step succeeded.
    pub successes: Successes,
    /// What did not run, each with the reason.
    pub skipped: Vec<&'static str>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            scripts,
            steps,
            accesses,
            faults,
            successes: _,
            skipped,
        } = self;
        write!(
            f,
            "{scripts} scripts, {steps} steps, {accesses} accesses, {faults} page faults"
        )?;
        for text in skipped {
            write!(f, "; skipped {text}")?;
        }
        Ok(())
    }
}

impl Report {
    fn add(&mut self, script: &Script, successes: Successes) {
        self.scripts += 1;
        self.steps += script.0.len() as u64;
        for (what, count) in successes {
            let total = match what {
                ACCESS => &mut self.accesses,
                FAULT => &mut self.faults,
                _ => self.successes.entry(what).or_default(),
            };
            *total += count;
        }
    }
}

/// How the machine, or Memwright on it, differs from the model.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The name of the saved script, or the number of the random program, with the setup.
    pub name: String,
    /// The first step after which a difference was found, and the difference.
    pub difference: String,
    /// The steps. With the feature `std`, without those that the failure does not need. Empty if the run could not
    /// start.
    pub script: Script,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            difference,
            script,
        } = self;
        write!(f, "{name}: {difference}")?;
        match script.0.is_empty() {
            true => Ok(()),
            false => write!(f, "\n{script:?}"),
        }
    }
}

impl core::error::Error for Failure {}

/// The state of the memory manager when a script starts.
#[derive(Clone, Copy, Debug)]
enum Setup {
    /// As after the start of a kernel, without a swap device.
    Plain,
    /// With a swap device.
    Swap,
    /// With a swap device, and with folios of four and eight pages.
    Folios,
    /// With a swap device, and huge pages wherever they fit.
    Huge,
    /// With a swap device, and huge pages only after a collapse.
    Collapse,
}

/// The setups without huge pages. A saved script without huge pages runs in each of them; a random program without huge
/// pages runs in one of them, in turn.
const SMALL: [Setup; 3] = [Setup::Plain, Setup::Swap, Setup::Folios];

/// The setups for scripts with huge pages.
const LARGE: [Setup; 2] = [Setup::Huge, Setup::Collapse];

/// The least number of frames on which the kit runs.
const LEAST_FRAMES: u64 = 512;

/// What is skipped with fewer frames than [`FRAMES_FOR_HUGE`].
const NO_HUGE: &str = "the scripts for huge pages, which need 12288 frames";

/// What is skipped with one CPU.
const ONE_CPU: &str = "invalidations on other CPUs, because programs run on one CPU";

/// The least number of frames on which the scripts for huge pages run.
const FRAMES_FOR_HUGE: u64 = 12_288;

/// One in this number of random programs runs with huge pages, if there is enough memory. Programs with huge pages take
/// the longest.
const HUGE_EVERY: u32 = 16;

/// The number of slots of the swap device. A swap device for huge pages has more slots.
const SLOTS: u32 = 64;
const SLOTS_FOR_HUGE: u32 = 8192;

/// The number of attempts to shorten a script that fails.
const ATTEMPTS: usize = if cfg!(feature = "std") { 400 } else { 0 };

/// Runs each saved script and `options.programs` random programs on the machine, and compares memory with a model after
/// each step: contents, refused accesses, rights, and what tracking of written and accessed pages reports. Compares the
/// numbers of frames at the end of each script.
///
/// `regions` is the memory for the test, as for [`Frames::new`]: at least 512 frames. Scripts for huge pages run if it
/// has 12288 frames; otherwise [`Report::skipped`] lists them. Each script starts with new page tables on all CPUs, and
/// uses the memory from the start again. [`TestMachine::unload`] has been called on each CPU when the function returns.
///
/// Before the first script, the machine is checked as [`Options::preflight`] says. One thread acts as every CPU, one after
/// another: [`invalidate_remote`](memwright_table::Machine::invalidate_remote) must complete although no thread acts as
/// the target. With the feature `std`, a machine on which it does not return is a failure after 10 seconds.
///
/// The feature `std` is for a host: a panic is then a failure like any other, and the script of a failure is shortened.
/// Without it, the first failure is returned as it is, and a panic is left to the panic handler. Memwright must have all
/// features, which is the default.
///
/// # Errors
/// The first failure. A run in which no program took a page fault fails, too.
pub fn run<M: TestMachine + Clone>(
    machine: M,
    regions: &[Region],
    options: &Options,
) -> Result<Report, Failure> {
    let frames: u64 = regions
        .iter()
        .map(|region| u64::from(region.range.count))
        .sum();
    let refused = |name: &str, difference| Failure {
        name: name.to_string(),
        difference,
        script: Script::default(),
    };
    let cpus = cpus_of(&machine, options.cpus).map_err(|text| refused("the options", text))?;
    if frames < LEAST_FRAMES {
        let text = format!("{frames} frames, where at least {LEAST_FRAMES} are needed");
        return Err(refused("the regions", text));
    }
    let run = Run {
        cpus,
        machine,
        regions,
    };
    run.check(options.preflight)
        .map_err(|(name, text)| refused(&name, text))?;
    let has_huge = frames >= FRAMES_FOR_HUGE;
    let skips = [(!has_huge, NO_HUGE), (cpus == 1, ONE_CPU)];
    let skips = skips.into_iter().filter(|(skips, _)| *skips);
    let mut report = Report {
        skipped: skips.map(|(_, text)| text).collect(),
        ..Report::default()
    };
    for saved in SAVED {
        run.saved(saved, has_huge, &mut report)?;
    }
    for number in 0..options.programs {
        // Each program has a seed of its own, so that it can be run without those before it.
        let seed = options
            .seed
            .wrapping_mul(1 << 32)
            .wrapping_add(number.into());
        let mut chance = Chance::new(seed);
        let is_huge = has_huge && number % HUGE_EVERY == HUGE_EVERY - 1;
        let (setups, generate) = match (is_huge, number % 3) {
            (true, _) => (&LARGE[..], generate::collapsing as Generate),
            (false, 0) => (&SMALL[..], generate::script as Generate),
            (false, 1) => (&SMALL[..], generate::freeing as Generate),
            (false, _) => (&SMALL[..], generate::splitting as Generate),
        };
        let setup = setups[(number as usize / 3) % setups.len()];
        let name = format!("random program {number} of seed {}", options.seed);
        run.one(
            &name,
            generate(&mut chance, options.steps),
            setup,
            &mut report,
        )?;
    }
    if report.steps == 0 || report.accesses == 0 || report.faults == 0 {
        return Err(Failure {
            name: "the whole run".to_string(),
            difference: format!("nothing was tested: {report}"),
            script: Script::default(),
        });
    }
    Ok(report)
}

/// Returns the number of CPUs on which programs run.
fn cpus_of<M: TestMachine>(machine: &M, wanted: usize) -> Result<usize, String> {
    let all = machine.cpu_count();
    match wanted {
        usize::MAX => Ok(all),
        _ if (1..=all).contains(&wanted) => Ok(wanted),
        _ => Err(format!("{wanted} CPUs, where 1 to {all} are possible")),
    }
}

type Generate = fn(&mut Chance, usize) -> Script;

struct Run<'a, M> {
    machine: M,
    regions: &'a [Region],
    cpus: usize,
}

impl<M: TestMachine + Clone> Run<'_, M> {
    fn frames(&self) -> Result<Frames<M>, String> {
        let frames = Frames::new(self.machine.clone(), self.regions);
        frames.map_err(|error| format!("the memory is refused: {error}"))
    }

    fn boot(&self) -> Result<Arc<Host<M>>, String> {
        Host::boot(&Arc::new(self.frames()?), self.cpus)
    }

    /// Checks the machine, or only that it can start. Returns what is wrong, with a name.
    fn check(&self, preflight: bool) -> Result<(), (String, String)> {
        let start = |text| ("the start".to_string(), text);
        if !preflight {
            return self.boot().map(drop).map_err(start);
        }
        let frames = self.frames().map_err(start)?;
        let mut outcome = Ok(());
        let checked = caught(|| {
            outcome = preflight::check(frames, self.cpus);
            Ok(())
        });
        if let Err(panic) = checked {
            return Err((
                "the checks before the scripts".to_string(),
                panic.to_string(),
            ));
        }
        outcome.map_err(|(method, text)| (format!("before the scripts, {method}"), text))
    }

    /// Starts a script on a new memory manager.
    ///
    /// # Panics
    /// If the machine cannot start, although it has started before.
    fn start(&self, setup: Setup) -> Lockstep<M> {
        let host = self.boot().expect("it has started before");
        let lockstep = Lockstep::new(host);
        let (lockstep, slots, huge) = match setup {
            Setup::Plain => return lockstep,
            Setup::Swap => (lockstep, SLOTS, None),
            Setup::Folios => (lockstep.in_folios(&[2, 3]), SLOTS, None),
            Setup::Huge => {
                let huge = Some(("always", SharedMode::Always));
                (lockstep.scaled(Scale(64)), SLOTS_FOR_HUGE, huge)
            }
            Setup::Collapse => {
                let huge = Some(("never", SharedMode::Never));
                (lockstep.scaled(Scale(64)), SLOTS_FOR_HUGE, huge)
            }
        };
        if let Some((private, shared)) = huge {
            let memory = lockstep.host().memory();
            memory.policy().set("thp", private).expect("a known policy");
            memory.huge().set_shared_mode(shared);
        }
        lockstep.with_swap(Arc::new(HostSwap::new(slots)))
    }

    fn saved(&self, saved: &Saved, has_huge: bool, report: &mut Report) -> Result<(), Failure> {
        let setups = match saved.is_huge() {
            false => &SMALL[..],
            true if has_huge => &LARGE[..],
            true => return Ok(()),
        };
        let name = format!("saved script {}", saved.name);
        for setup in setups {
            let script: Script = saved.text.parse().map_err(|difference| Failure {
                name: name.clone(),
                difference,
                script: Script::default(),
            })?;
            self.one(&name, script, *setup, report)?;
        }
        Ok(())
    }

    fn one(
        &self,
        name: &str,
        script: Script,
        setup: Setup,
        report: &mut Report,
    ) -> Result<(), Failure> {
        let script = script.on(self.cpus);
        let difference = match judge(|| self.start(setup), &script) {
            Ok(successes) => {
                report.add(&script, successes);
                return Ok(());
            }
            Err(difference) => difference,
        };
        let again = |script: &Script| -> Result<(), Difference> {
            judge(|| self.start(setup), script).map(drop)
        };
        let (script, difference) = shorten(script, difference, ATTEMPTS, again);
        Err(Failure {
            name: format!("{name}, setup {setup:?}"),
            difference: difference.to_string(),
            script,
        })
    }
}
