//! Runs Debian's static busybox: shells, pipes and applets. The output on the host is the reference.

use crate::guest::Guest;
use crate::prepare;
use libtest_mimic::{Failed, Trial};
use std::process::{Command, Stdio};

/// Scripts whose output is the same on every Linux.
const SCRIPTS: &[(&str, &str)] = &[
    (
        "pipeline",
        "seq 1 2000 | grep 7 | sort -rn | head -20 | tr '\\n' ' ' | wc",
    ),
    (
        "loops",
        "i=0; while [ $i -lt 50 ]; do i=$((i + 1)); echo $i; done | awk '{ s += $1 } END { print NR, s }'; for w in a b c; do echo \"<$w>\"; done",
    ),
    (
        "redirections",
        "mkdir -p /tmp/r.$$; cd /tmp/r.$$; echo one > f; echo two >> f; cat < f > g; cat g f 2>&1; ls none 2> e || echo failed; wc -l < e; cat <<END\nhere $((1 + 2))\nEND\ncd /; rm -r /tmp/r.$$",
    ),
    (
        "background",
        "for i in 1 2 3 4 5; do (sleep 0.$i; echo done $i) & done; wait; echo all; sleep 100 & kill $!; wait $! 2>/dev/null; echo $?",
    ),
    (
        "substitution",
        "echo $(echo a; echo b | cat) \"$(seq 3)\" $(( $(seq 10 | wc -l) * 2 )); f() { local x=$1; echo f$x; }; f 3; set -- x y z; shift; echo $# $1",
    ),
    (
        "sort",
        "seq 1 20000 | awk '{ print ($1 * 7919) % 20011, $1 }' | sort -n -k1 | sort -k2n -u | md5sum",
    ),
    (
        "awk",
        "seq 1 3000 | awk '{ a[$1 % 97] += $1; n[$1 % 97]++ } END { for (i = 0; i < 97; i++) printf \"%d %d %.3f\\n\", i, n[i], a[i] / n[i] }' | md5sum",
    ),
    (
        "tar",
        "mkdir -p /tmp/t.$$/d/e; cd /tmp/t.$$; seq 1000 > d/numbers; echo x > d/e/x; ln -s numbers d/link; tar cf t.tar d; mkdir out; tar xf t.tar -C out; cat out/d/numbers out/d/e/x | md5sum; readlink out/d/link; tar tf t.tar | sort; gzip -9 < t.tar | gunzip | cmp - t.tar && echo same; cd /; rm -r /tmp/t.$$",
    ),
    (
        "md5sum",
        "seq 1 2400000 | head -c 16777216 > /tmp/m.$$; wc -c < /tmp/m.$$; md5sum < /tmp/m.$$; cat /tmp/m.$$ | sha1sum; rm /tmp/m.$$",
    ),
    (
        "find",
        "mkdir -p /tmp/f.$$/a/b/c; cd /tmp/f.$$; touch a/1 a/b/2 a/b/c/3; find . -type f | sort; find . -name '[13]' -exec echo found {} \\; | sort; du -a . | wc -l; cd /; rm -rf /tmp/f.$$; ls -d /tmp/f.$$ 2>/dev/null || echo gone",
    ),
    (
        "sed",
        "seq 1 100 | sed -n '/5$/s/5/five/p' | paste -s -d, -; printf 'a b\\nc d\\n' | sed 's/\\(.\\) \\(.\\)/\\2 \\1/'; echo hello | rev; seq 5 | tac | xargs echo",
    ),
    (
        "signals",
        "trap 'echo caught' USR1; kill -USR1 $$; (trap '' TERM; kill -TERM $(exec sh -c 'echo $PPID'); echo alive); sh -c 'kill -9 $$'; echo $?; sh -c 'kill -15 $$'; echo $?",
    ),
    (
        "many",
        "i=0; while [ $i -lt 200 ]; do sh -c : & i=$((i + 1)); done; wait; echo reaped",
    ),
];

pub fn trials() -> Vec<Trial> {
    let mut trials: Vec<Trial> = SCRIPTS
        .iter()
        .map(|&(name, script)| Trial::test(format!("busybox::{name}"), move || same(script)))
        .collect();
    trials.push(Trial::test("busybox::stdin_from_a_pipe", stdin_from_a_pipe));
    trials.push(Trial::test("busybox::stdin_from_a_file", stdin_from_a_file));
    trials.push(Trial::test("busybox::environment", environment));
    trials
}

/// Checks that a script has the same output in the guest as on the host.
fn same(script: &str) -> Result<(), Failed> {
    let reference = Command::new(prepare::busybox())
        .args(["sh", "-c", script])
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .stdin(Stdio::null())
        .output()?;
    let ending = Guest::shell(script).untraced().run()?;
    ending.expect_output(&reference.stdout)?;
    ending.expect_code(reference.status.code().unwrap_or(-1))
}

fn numbers() -> Vec<u8> {
    (0..500_000u32)
        .flat_map(|i| format!("{}\n", i.wrapping_mul(2_654_435_761) % 100_003).into_bytes())
        .collect()
}

fn stdin_from_a_pipe() -> Result<(), Failed> {
    let input = numbers();
    let ending = Guest::shell("cat; echo; wc -c < /dev/null")
        .pipe(&input)
        .untraced()
        .run()?;
    ending.expect_output(&[&input[..], b"\n0\n"].concat())?;
    ending.expect_code(0)
}

fn stdin_from_a_file() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("numbers");
    std::fs::write(&path, numbers())?;
    let ending = Guest::shell("read first; echo $first; wc -l")
        .input_file(&path)
        .untraced()
        .run()?;
    ending.expect_output(b"0\n499999\n")?;
    ending.expect_code(0)
}

/// Checks the environment variables in the guest.
fn environment() -> Result<(), Failed> {
    let script = "echo $PATH $HOME $TERM $EXTRA; pwd; id -u; hostname; uname -r; echo $$ $PPID; umask; \
                  ulimit -s; cat /etc/passwd | cut -d: -f1; test -t 0 || echo no terminal; cat /proc/sys/vm/overcommit_memory";
    let ending = Guest::shell(script)
        .option("--env", "EXTRA=more words")
        .run()?;
    let expected = "/usr/bin:/bin / dumb more words\n/\n0\nmemwright\n7.2.0\n2 1\n0022\n8192\nroot\nnobody\nno terminal\n0\n";
    ending.expect_output(expected.as_bytes())?;
    ending.expect_code(0)
}
