//! Tests a bench that an array of Slurm jobs shares. One machine runs Slurm's own daemons. The worker of one part is
//! killed, and the part is submitted again.

mod skipped;

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Cheap experiments, on Memwright's kernel with two policies.
const PLAN: &str = r#"
names = ["many-areas", "fork-reuse"]
policy = ["write-upgrade=off"]
no-verify = true
"#;

/// The programs that the test needs, and the packages of Debian that contain them.
const PROGRAMS: &[(&str, &str)] = &[
    ("munged", "munge"),
    ("slurmctld", "slurmctld"),
    ("slurmd", "slurmd"),
    ("sbatch", "slurm-client"),
    ("qemu-system-x86_64", "qemu-system-x86"),
];

/// The maximum time for which the test waits for Slurm. A test that passes does not wait that long.
const PATIENCE: Duration = Duration::from_secs(300);

/// The number of parts, and the part whose worker is killed.
const PARTS: usize = 3;
const KILLED: usize = 2;

/// A wrapper of QEMU. It does not start the guests of a task while the file `hold-TASK` of that task exists.
const QEMU: &str = "#!/bin/sh
case $* in
*-kernel*) hold=FOLDER/hold-$SLURM_ARRAY_TASK_ID ;;
*) hold= ;;
esac
while [ -e \"$hold\" ]; do
	: >FOLDER/held-$SLURM_ARRAY_TASK_ID
	sleep 0.1
done
exec qemu-system-x86_64 \"$@\"
";

/// The script of the jobs. The worker replaces the shell, and so has its process ID.
const SCRIPT: &str = "#!/bin/sh
echo $$ >FOLDER/pid-$SLURM_ARRAY_TASK_ID
exec MEMWRIGHT bench --plan plan.toml --shard auto/PARTS --results results
";

/// Slurm on one machine, with all of its files in a folder. Dropping this value ends the daemons.
struct Slurm {
    folder: tempfile::TempDir,
    daemons: Vec<Child>,
}

impl Drop for Slurm {
    fn drop(&mut self) {
        // Each daemon is killed before the daemons that were started earlier, because it uses them.
        for daemon in self.daemons.iter_mut().rev() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

/// Returns the path of a program, which can be in a folder that only the superuser has in PATH.
fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    folders
        .map(|folder| folder.join(program))
        .find(|path| path.is_file())
}

/// Returns the first line of a command's output.
fn line_of(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().next().unwrap_or_default().to_owned()
}

impl Slurm {
    /// Starts the daemons, and waits until the node accepts jobs.
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut slurm = Self {
            folder,
            daemons: Vec::new(),
        };
        let key: Vec<u8> = (0..128)
            .map(|number: u8| number.wrapping_mul(197))
            .collect();
        slurm.write("key", 0o400, key);
        for name in ["state", "spool"] {
            fs::create_dir(slurm.at(name)).unwrap();
        }
        // The listeners are dropped only after both have been bound, so that the ports differ.
        let ports = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [controller, node] = ports.map(|port| port.local_addr().unwrap().port());
        let host = line_of(&Command::new("uname").arg("-n").output().unwrap());
        let place = slurm.at("").display().to_string();
        slurm.write(
            "slurm.conf",
            0o644,
            format!(
                "ClusterName=memwright\nSlurmctldHost={host}(127.0.0.1)\nSlurmctldPort={controller}\n\
                 SlurmdPort={node}\nSlurmUser=root\nSlurmdUser=root\nAuthType=auth/munge\n\
                 AuthInfo=socket={place}munge.socket\nStateSaveLocation={place}state\nSlurmdSpoolDir={place}spool\n\
                 SlurmctldPidFile={place}slurmctld.pid\nSlurmdPidFile={place}slurmd.pid\n\
                 SlurmdParameters=config_overrides\nProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\n\
                 JobAcctGatherType=jobacct_gather/none\n\
                 SelectType=select/cons_tres\nSelectTypeParameters=CR_CPU\nReturnToService=2\nMailProg=/bin/true\n\
                 NodeName={host} NodeAddr=127.0.0.1 CPUs={PARTS} State=UNKNOWN\n\
                 PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n"
            ),
        );
        let munge = [
            "--foreground",
            "--force",
            &format!("--key-file={place}key"),
            &format!("--socket={place}munge.socket"),
            &format!("--pid-file={place}munge.pid"),
            &format!("--log-file={place}munge.log"),
            &format!("--seed-file={place}munge.seed"),
        ];
        slurm.daemon("munged", &munge);
        slurm.wait_for("munged", |slurm| slurm.at("munge.socket").exists());
        slurm.daemon("slurmctld", &["-D", "-L", &format!("{place}slurmctld.log")]);
        slurm.daemon("slurmd", &["-D", "-L", &format!("{place}slurmd.log")]);
        slurm.wait_for("an idle node", |slurm| {
            let output = slurm
                .command("sinfo")
                .args(["-h", "-o", "%T"])
                .output()
                .unwrap();
            line_of(&output) == "idle"
        });
        slurm
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, mode: u32, text: impl AsRef<[u8]>) {
        fs::write(self.at(name), text).unwrap();
        fs::set_permissions(self.at(name), fs::Permissions::from_mode(mode)).unwrap();
    }

    /// Returns a command whose working folder is the folder of the jobs.
    fn command(&self, program: impl AsRef<Path>) -> Command {
        let program = program.as_ref();
        let path = program.to_str().and_then(find);
        let mut command = Command::new(path.as_deref().unwrap_or(program));
        command
            .current_dir(self.folder.path())
            .env("SLURM_CONF", self.at("slurm.conf"))
            .env("MEMWRIGHT_QEMU", self.at("qemu"))
            .env_remove("SLURM_ARRAY_TASK_ID")
            .stdin(Stdio::null());
        command
    }

    fn daemon(&mut self, program: &str, arguments: &[&str]) {
        let log = fs::File::create(self.at(&format!("{program}.out"))).unwrap();
        let mut command = self.command(program);
        let command = command.args(arguments).stdout(Stdio::null()).stderr(log);
        self.daemons.push(command.spawn().unwrap());
    }

    /// Waits for a condition. If it does not become true, fails with the logs of the daemons.
    fn wait_for(&self, what: &str, is_there: impl Fn(&Self) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !is_there(self) {
            if Instant::now() >= end {
                let names = ["munged.out", "munge.log", "slurmctld.log", "slurmd.log"];
                let logs = names.map(|name| fs::read_to_string(self.at(name)).unwrap_or_default());
                panic!("Slurm: {what}: {}", logs.join("\n"));
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Submits tasks of the job array, and returns the ID of the job.
    fn submit(&self, array: &str) -> String {
        let mut sbatch = self.command("sbatch");
        let output = sbatch
            .args([
                "--parsable",
                "--cpus-per-task=1",
                "--output=task-%a.out",
                "--array",
                array,
            ])
            .arg("sweep.sh")
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        line_of(&output)
    }

    /// Waits until all tasks of a job have ended except those in `left`.
    fn wait_for_tasks(&self, job: &str, left: &[usize]) {
        self.wait_for("the tasks", |slurm| {
            let mut squeue = slurm.command("squeue");
            let output = squeue
                .args(["-h", "-r", "-j", job, "-o", "%K"])
                .output()
                .unwrap();
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let mut tasks: Vec<usize> = text.lines().flat_map(str::parse).collect();
            tasks.sort_unstable();
            tasks == left
        });
    }

    /// Runs `memwright`. Returns its output as text, Markdown and JSON, what it prints to standard error, and its exit
    /// code.
    fn memwright(&self, line: &str) -> ([String; 3], String, Option<i32>) {
        let mut command = self.command(env!("CARGO_BIN_EXE_memwright"));
        let output = command
            .args(line.split(' '))
            .args(["--md", "out.md", "--json", "out.json"])
            .output()
            .unwrap();
        let read = |name: &str| fs::read_to_string(self.at(name)).unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (
            [text, read("out.md"), read("out.json")],
            said,
            output.status.code(),
        )
    }
}

#[test]
fn an_array_whose_worker_is_killed_prints_what_one_bench_prints() {
    let missing = PROGRAMS
        .iter()
        .filter(|(program, _)| find(program).is_none());
    let missing: Vec<&str> = missing.map(|(_, package)| *package).collect();
    if !missing.is_empty() {
        skipped::skipped(&format!(
            "these packages are missing: {}",
            missing.join(" ")
        ));
        return;
    }
    if !rustix::process::getuid().is_root() {
        skipped::skipped("only root may start the daemons");
        return;
    }
    let slurm = Slurm::start();
    let folder = slurm.folder.path().display().to_string();
    slurm.write("plan.toml", 0o644, PLAN);
    slurm.write("qemu", 0o755, QEMU.replace("FOLDER", &folder));
    let script = SCRIPT
        .replace("FOLDER", &folder)
        .replace("MEMWRIGHT", env!("CARGO_BIN_EXE_memwright"))
        .replace("PARTS", &PARTS.to_string());
    slurm.write("sweep.sh", 0o755, script);
    let (serial, said, code) = slurm.memwright("bench --plan plan.toml");
    assert_eq!(code, Some(0), "{said}");

    // Hold one task, and wait until all other tasks have ended.
    slurm.write(&format!("hold-{KILLED}"), 0o644, "");
    let job = slurm.submit(&format!("1-{PARTS}"));
    slurm.wait_for("the held task", |slurm| {
        slurm.at(&format!("held-{KILLED}")).exists()
    });
    slurm.wait_for_tasks(&job, &[KILLED]);
    let worker = fs::read_to_string(slurm.at(&format!("pid-{KILLED}"))).unwrap();
    let worker = Pid::from_raw(worker.trim().parse().unwrap()).unwrap();
    kill_process(worker, Signal::KILL).unwrap();
    slurm.wait_for_tasks(&job, &[]);
    let (_, said, code) = slurm.memwright("report results");
    assert_eq!(code, Some(4), "{said}");
    assert!(said.contains("missing: "), "{said}");

    fs::remove_file(slurm.at(&format!("hold-{KILLED}"))).unwrap();
    let job = slurm.submit(&KILLED.to_string());
    slurm.wait_for_tasks(&job, &[]);
    let (merged, said, code) = slurm.memwright("report results");
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(merged, serial);
}
