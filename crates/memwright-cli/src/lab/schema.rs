//! The published schemas against what the command writes.

use super::counts::{Counts, Instructions};
use super::document::{Document, Host, KIND, Kernel, Qemu, SCHEMA};
use super::log::{Marks, Region};
use super::output::{self, Comparison};
use super::tables::PageTables;
use crate::profile::tree::{Call, Line, Profile};
use crate::report::{Ending, HashedFile};
use crate::schema::{faults, published};

const FILE: &str = "kernel-run.json";

fn document() -> Document {
    let file = HashedFile {
        path: "/x".to_owned(),
        sha256: "00".to_owned(),
    };
    let counts = Counts {
        full_flushes: Some(1),
        switches: Some(2),
        cr4_writes: Some(3),
        invlpg: Some(4),
        invpcid: Some(5),
        instructions: Some(Instructions::default()),
        ..Counts::default()
    };
    Document {
        schema: SCHEMA,
        kind: KIND.to_owned(),
        program: file.clone(),
        arguments: vec!["x".to_owned()],
        companions: vec![file],
        kernel: Kernel {
            name: "k".to_owned(),
            sha256: String::new(),
            build_id: Some(String::new()),
            config_sha256: Some(String::new()),
            version: String::new(),
            command_line: String::new(),
        },
        init_sha256: Some(String::new()),
        qemu: Qemu {
            version: String::new(),
            sha256: String::new(),
        },
        memory: 1,
        cpus: 1,
        settings: vec!["thp=always".to_owned()],
        outcome: Ending::Exited(0),
        repeats: Some(false),
        differs: vec!["output".to_owned()],
        run: Some(counts),
        regions: Some(vec![Region {
            region: 1,
            marks: Marks::default(),
            counts,
            at_beginning: Some(PageTables::default()),
            at_end: Some(PageTables::default()),
        }]),
        functions: Some(Profile {
            region: Some(1),
            total: 3,
            mismatches: 0,
            symbols_sha256: Some(String::new()),
            functions: vec!["f".to_owned()],
            calls: vec![Call {
                caller: Some(0),
                function: 0,
                interrupt: true,
                count: 1,
                instructions: 3,
            }],
            lines: vec![Line {
                function: "f".to_owned(),
                place: "f.c:1".to_owned(),
                instructions: 3,
            }],
        }),
        host: Host {
            image: String::new(),
            command: String::new(),
        },
    }
}

#[test]
fn what_is_written_is_what_is_published() {
    let whole = serde_json::to_value(document()).unwrap();
    assert_eq!(faults(FILE, &whole), Vec::<String>::new());
    let mut bare = document();
    (bare.run, bare.regions, bare.repeats, bare.differs) = (None, None, None, Vec::new());
    (bare.kernel.config_sha256, bare.kernel.build_id) = (None, None);
    (bare.init_sha256, bare.functions) = (None, None);
    let bare = serde_json::to_value(bare).unwrap();
    assert_eq!(faults(FILE, &bare), Vec::<String>::new());
    let read: Document = serde_json::from_value(whole.clone()).unwrap();
    assert_eq!(serde_json::to_value(read).unwrap(), whole);
}

#[test]
fn every_published_name_is_written() {
    let schema = published(FILE);
    let whole = serde_json::to_value(document()).unwrap();
    for name in schema["properties"].as_object().unwrap().keys() {
        assert!(whole.get(name).is_some(), "{name}");
    }
}

#[test]
fn what_is_wrong_is_found() {
    let mut wrong = serde_json::to_value(document()).unwrap();
    wrong["cpus"] = "one".into();
    wrong["more"] = 1.into();
    wrong["run"].as_object_mut().unwrap().remove("user_faults");
    assert_eq!(faults(FILE, &wrong).len(), 3);
}

#[test]
fn comparisons_fit_theirs() {
    let documents = [document(), document()];
    let sheet = output::sheet(&documents);
    let whole = serde_json::to_value(Comparison::new(&documents, &sheet)).unwrap();
    assert_eq!(faults("comparison.json", &whole), Vec::<String>::new());
    let schema = published("comparison.json");
    for name in schema["properties"].as_object().unwrap().keys() {
        assert!(whole.get(name).is_some(), "{name}");
    }
}

#[test]
fn one_instruction_is_a_difference_and_other_page_tables_are_other_work() {
    let compared = |change: fn(&mut Region)| {
        let mut documents = [document(), document()];
        for region in documents[1].regions.iter_mut().flatten() {
            change(region);
        }
        let sheet = output::sheet(&documents);
        let comparison = Comparison::new(&documents, &sheet);
        (
            comparison.differs,
            comparison.state_differs.len(),
            sheet.notes,
        )
    };
    let (differs, states, _) = compared(|_| {});
    assert_eq!((differs, states), (false, 0));
    let (differs, states, _) = compared(|region| {
        if let Some(instructions) = &mut region.counts.instructions {
            instructions.kernel += 1;
        }
    });
    assert_eq!((differs, states), (true, 0));
    let (_, states, notes) = compared(|region| {
        if let Some(tables) = &mut region.at_end {
            tables.small_writable += 1;
        }
    });
    assert_eq!(states, 1);
    assert!(
        notes
            .iter()
            .any(|line| line.starts_with("NOT THE SAME STATE: region 1: "))
    );
    // How many tables it takes, and what the kernel maps for itself, is no work of the program's.
    let (differs, states, _) = compared(|region| {
        if let Some(tables) = &mut region.at_end {
            tables.tables += 1;
            tables.vdso += 1;
        }
    });
    assert_eq!((differs, states), (true, 0));
    let (differs, states, notes) = compared(|region| region.marks.not_ended += 1);
    assert_eq!((differs, states), (true, 1));
    let line = "k: region 1: beginnings without an end: 1";
    assert!(notes.iter().any(|note| note == line), "{notes:?}");
    let (_, _, notes) = compared(|region| region.marks.passes = 3);
    let line =
        "k: region 1: the counts are the sum of 3 passes, the page tables those of the first";
    assert!(notes.iter().any(|note| note == line), "{notes:?}");
}

#[test]
fn a_region_that_one_kernel_alone_enters_is_a_difference() {
    let mut documents = [document(), document()];
    for region in documents[0].regions.iter_mut().flatten() {
        region.marks.passes = 1;
    }
    documents[1].regions = Some(Vec::new());
    let sheet = output::sheet(&documents);
    let comparison = Comparison::new(&documents, &sheet);
    assert!(comparison.differs);
    assert_eq!(
        comparison.state_differs,
        ["NOT THE SAME STATE: region 1: Marks: passes: 1 and 0"]
    );
    // Without the plugin nothing sees marks.
    documents[1].regions = None;
    let sheet = output::sheet(&documents);
    assert!(Comparison::new(&documents, &sheet).state_differs.is_empty());
}
