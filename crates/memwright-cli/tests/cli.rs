//! Tests of the command line as users see it: help, usage errors, bad input, the QEMU command line.

#[test]
fn transcripts() {
    trycmd::TestCases::new()
        .env("MEMWRIGHT_QEMU", "qemu-system-x86_64")
        .case("tests/cmd/*.trycmd");
}
