//! Tests of the account of a run, as JSON and as text.

use crate::support::{ends, run};
use libtest_mimic::Trial;

/// Returns every test of this file.
pub fn trials() -> Vec<Trial> {
    crate::trials![
        the_document_holds_what_the_guest_counted,
        every_name_of_the_document_is_explained,
        the_document_does_not_depend_on_the_version_of_qemu,
        the_table_reads_as_people_do,
        a_file_that_cannot_be_written_is_a_failure,
    ]
}

const STEPS: &str = "account fault_demand_zero 1234\\npaging_structure_hits not_observable\\n\n\
    account stub madvise 2\\nunknown clone3 1\\n\nexited 7";

fn the_document_holds_what_the_guest_counted() {
    let (code, stdout, _) =
        ends(run(STEPS).args(["--json", "-", "--policy", "aslr=3", "/bin/true", "a b"]));
    assert_eq!(code, 7);
    let document: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(document["schema"], 2);
    assert_eq!(document["program"]["path"], "/bin/true");
    assert_eq!(document["program"]["sha256"].as_str().unwrap().len(), 64);
    assert_eq!(
        document["arguments"],
        serde_json::json!(["/bin/true", "a b"])
    );
    assert_eq!(document["outcome"], serde_json::json!({ "exited": 7 }));
    assert_eq!(document["policies"], serde_json::json!(["aslr=3"]));
    assert_eq!(document["memory"], 512 << 20);
    assert_eq!(document["repeatable"], true);
    assert_eq!(document["account"]["fault_demand_zero"], 1234);
    assert_eq!(
        document["account"]["paging_structure_hits"],
        "not observable under TCG"
    );
    assert_eq!(document["stubs"], serde_json::json!({ "madvise": 2 }));
    assert_eq!(document["unknown"], serde_json::json!({ "clone3": 1 }));
    let libraries: Vec<_> = document["companions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| file["path"].to_string())
        .collect();
    assert!(
        libraries.iter().any(|path| path.contains("libc.so.6")),
        "{libraries:?}"
    );
}

fn every_name_of_the_document_is_explained() {
    let (_, stdout, _) = ends(run(STEPS).args(["--json", "-", "/bin/true"]));
    let document: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(&stdout).unwrap();
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/json.md"))
        .unwrap();
    for name in document.keys() {
        assert!(
            page.contains(&format!("| `{name}` |")),
            "{name} is not explained in docs/json.md"
        );
    }
}

fn the_document_does_not_depend_on_the_version_of_qemu() {
    let of = |version| {
        ends(
            run(STEPS)
                .env("STAND_IN_VERSION", version)
                .args(["--json", "-", "/bin/true"]),
        )
    };
    assert_eq!(of("7.2.22"), of("10.0.2"));
}

fn the_table_reads_as_people_do() {
    let (_, stdout, stderr) = ends(run(STEPS).arg("/bin/true"));
    assert!(stdout.is_empty());
    for line in [
        "               1,234  ",
        "not observable under TCG  ",
        "madvise",
        "clone3",
        "exited with code 7",
    ] {
        assert!(stderr.contains(line), "{line} is not in\n{stderr}");
    }
    assert!(!stderr.contains('\x1b'));
}

fn a_file_that_cannot_be_written_is_a_failure() {
    let (code, _, stderr) =
        ends(run("exited 0").args(["--json", "/no/such/folder/account", "/bin/true"]));
    assert_eq!(code, 125);
    assert!(stderr.contains("/no/such/folder/account"), "{stderr}");
}
