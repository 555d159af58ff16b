//! Runs the example, and compares what it prints with the page that explains it.

use std::process::Command;

const PAGE: &str = include_str!("../../../docs/embedding-steps.md");

#[test]
fn the_example_prints_what_its_page_shows() {
    let example = Command::new(env!("CARGO_BIN_EXE_memwright-example-emulator"));
    let output = { example }.output().expect("the example starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let (_, block) = PAGE.split_once("```text\n").expect("a block of output");
    let (_, shown) = block.split_once('\n').expect("the command");
    let (shown, _) = shown.split_once("```").expect("the end of the block");
    assert_eq!(String::from_utf8_lossy(&output.stdout), shown);
}
