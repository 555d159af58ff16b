//! Tests the published schemas against the documents that the command writes.

use crate::compare::comparison;
use crate::model::counts::{Counts, Instructions, ROWS};
use crate::model::faults::tests::example;
use crate::model::hashed_file::HashedFile;
use crate::model::kernel_run::{Document, Host, KIND, Kernel, Qemu, SCHEMA};
use crate::model::memwright_run::Ending;
use crate::model::page_tables::PageTables;
use crate::model::passes::Each;
use crate::model::profile::{Call, Line, Profile};
use crate::model::region::{Marks, Region};
use crate::model::saved::Saved;
use crate::model::schema::{faults, published};
use crate::model::sent::Sent;

const FILE: &str = "kernel-run.json";

/// Returns a document in which every optional part is present.
pub fn document() -> Document {
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
        program: Some(file.clone()),
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
        output_sha256: Some("00".to_owned()),
        errors_sha256: Some("00".to_owned()),
        repeats: Some(false),
        differs: vec!["output".to_owned()],
        missed: Some(vec!["/etc/x".to_owned()]),
        run: Some(counts),
        by_cpu: vec![counts, counts],
        sent: vec![Sent {
            from: 0,
            to: 1,
            vector: 0xfb,
            count: 3,
        }],
        regions: Some(vec![region(counts)]),
        faults: Some(example()),
        functions: Some(profile()),
        host: Host {
            image: String::new(),
            command: String::new(),
        },
    }
}

/// Returns a region in which every optional part is present.
fn region(counts: Counts) -> Region {
    Region {
        region: 1,
        name: Some("toggle".to_owned()),
        marks: Marks::default(),
        counts,
        each: Some(Each {
            first: counts,
            least: counts,
            median: counts,
            most: counts,
        }),
        at_beginning: Some(PageTables::default()),
        at_end: Some(PageTables::default()),
    }
}

/// Returns a profile in which every optional part is present.
fn profile() -> Profile {
    Profile {
        region: Some(1),
        region_name: Some("toggle".to_owned()),
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
    }
}

#[test]
fn what_is_written_is_what_is_published() {
    let whole = serde_json::to_value(document()).unwrap();
    assert_eq!(faults(FILE, &whole), Vec::<String>::new());
    let mut bare = document();
    bare.program = None;
    (bare.run, bare.regions, bare.repeats, bare.differs) = (None, None, None, Vec::new());
    (bare.kernel.config_sha256, bare.kernel.build_id) = (None, None);
    (bare.init_sha256, bare.functions, bare.faults) = (None, None, None);
    (bare.output_sha256, bare.errors_sha256) = (None, None);
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

/// Compares documents under the names of their kernels. Returns the comparison as JSON, and the notes of its sheet.
fn compared(documents: [Document; 2]) -> (serde_json::Value, Vec<String>) {
    let documents = documents.map(|one| (one.kernel.name.clone(), Saved::Kernel(Box::new(one))));
    let columns: Vec<_> = documents
        .iter()
        .map(|(name, saved)| (name.clone(), saved))
        .collect();
    let (sheet, comparison) = comparison::compared(&columns, &[], Vec::new()).unwrap();
    (serde_json::to_value(comparison).unwrap(), sheet.notes)
}

#[test]
fn comparisons_fit_theirs() {
    let mut other = document();
    other.outcome = Ending::Killed(11);
    let (whole, _) = compared([document(), other]);
    assert_eq!(faults("comparison.json", &whole), Vec::<String>::new());
    assert_eq!(whole["kinds"], serde_json::json!(["program", "repetition"]));
    let schema = published("comparison.json");
    for name in schema["properties"].as_object().unwrap().keys() {
        assert!(whole.get(name).is_some(), "{name}");
    }
    let mut wrong = whole;
    wrong["columns"][0]["cpus"] = "one".into();
    wrong["kinds"][0] = "something".into();
    assert_eq!(faults("comparison.json", &wrong).len(), 2);
}

#[test]
fn one_instruction_is_a_difference_and_other_page_tables_are_other_work() {
    let compared = |change: fn(&mut Region)| {
        let mut documents = [document(), document()];
        for region in documents[1].regions.iter_mut().flatten() {
            change(region);
        }
        let (comparison, notes) = compared(documents);
        let states = comparison["state_differs"].as_array().unwrap().len();
        (comparison["differs"] == true, states, notes)
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
            .any(|line| line.starts_with("NOT THE SAME STATE: region 1 (toggle): "))
    );
    // The number of page tables and the kernel's own mappings do not count as work of the program.
    let (differs, states, _) = compared(|region| {
        if let Some(tables) = &mut region.at_end {
            tables.tables += 1;
            tables.vdso += 1;
        }
    });
    assert_eq!((differs, states), (true, 0));
    // Each kernel chooses how many pages of a file it maps around a fault. The number of these pages at a begin mark is
    // therefore not compared. The number of pages that a region adds is compared.
    let (differs, states, _) = compared(|region| {
        for tables in [&mut region.at_beginning, &mut region.at_end] {
            tables.get_or_insert_default().small_read_only += 18;
        }
    });
    assert_eq!((differs, states), (true, 0));
    let (differs, states, notes) = compared(|region| {
        if let Some(tables) = &mut region.at_end {
            tables.small_read_only += 1;
        }
    });
    assert_eq!((differs, states), (true, 1));
    let line = "NOT THE SAME STATE: region 1 (toggle): Page tables, changed from its beginning to its end: 4 KiB, read-only: ";
    assert!(notes.iter().any(|note| note.starts_with(line)), "{notes:?}");
    let (differs, states, notes) = compared(|region| region.marks.not_ended += 1);
    assert_eq!((differs, states), (true, 1));
    let line = "k: region 1 (toggle): beginnings without an end: 1";
    assert!(notes.iter().any(|note| note == line), "{notes:?}");
    let (_, _, notes) = compared(|region| region.marks.passes = 3);
    let line = "k: region 1 (toggle): the counts are the sum of 3 passes, the page tables those of the first";
    assert!(notes.iter().any(|note| note == line), "{notes:?}");
}

#[test]
fn regions_that_are_called_differently_are_said() {
    let notes = |names: [Option<&str>; 2]| -> (Vec<String>, bool) {
        let mut documents = [document(), document()];
        for (document, name) in documents.iter_mut().zip(names) {
            for region in document.regions.iter_mut().flatten() {
                region.name = name.map(str::to_owned);
            }
        }
        documents[1].kernel.name = "other".to_owned();
        let (comparison, mut notes) = compared(documents);
        notes.retain(|line| line.contains("names of region"));
        (notes, comparison["differs"] == true)
    };
    for (names, expected) in [
        ([Some("a"), Some("a")], None),
        ([None, None], None),
        ([Some("a"), Some("b")], Some("k: a, other: b")),
        ([Some("a"), None], Some("k: a, other: no name")),
    ] {
        let expected = expected.map(|text| format!("the names of region 1 differ: {text}"));
        // A difference in a region's name is not a difference in a count.
        assert_eq!(notes(names), (Vec::from_iter(expected), false));
    }
}

#[test]
fn passes_are_compared_where_every_column_has_them() {
    let with = |change: fn(&mut Region)| {
        let mut documents = [document(), document()];
        for region in documents[1].regions.iter_mut().flatten() {
            change(region);
        }
        let [first, other] = documents.map(|one| Saved::Kernel(Box::new(one)));
        let columns = [("a".to_owned(), &first), ("b".to_owned(), &other)];
        let sheet = comparison::sheet(&columns).unwrap();
        let rows = sheet.sections.iter().flat_map(|section| &section.rows);
        let of_passes = rows.clone().filter(|row| row.name.contains(".each."));
        let differing = rows.filter(|row| row.differs());
        let differing: Vec<String> = differing.map(|row| row.name.clone()).collect();
        (of_passes.count(), differing)
    };
    assert_eq!(with(|_| {}), (4 * ROWS, Vec::new()));
    // The sum over all passes and all other statistics are unchanged.
    let (count, differing) = with(|region| {
        if let Some(each) = &mut region.each {
            each.least.user_faults.write += 1;
        }
    });
    assert_eq!(
        (count, &*differing),
        (
            4 * ROWS,
            &["region.1.each.min.user_faults.write".to_owned()][..]
        )
    );
    // Without statistics of passes, as in a document of an earlier version, only the other rows are compared.
    assert_eq!(with(|region| region.each = None), (0, Vec::new()));
}

#[test]
fn a_region_that_one_kernel_alone_enters_is_a_difference() {
    let mut documents = [document(), document()];
    for region in documents[0].regions.iter_mut().flatten() {
        region.marks.passes = 1;
    }
    documents[1].regions = Some(Vec::new());
    let (comparison, _) = compared(documents.clone());
    assert_eq!(comparison["differs"], true);
    assert_eq!(
        comparison["state_differs"],
        serde_json::json!(["NOT THE SAME STATE: region 1 (toggle): Marks: passes: 1 and 0"])
    );
    // Without the plugin, no marks are detected.
    documents[1].regions = None;
    let (comparison, _) = compared(documents);
    assert_eq!(comparison["state_differs"], serde_json::json!([]));
}
