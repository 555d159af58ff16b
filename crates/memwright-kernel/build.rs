//! Passes the linker script to the linker. The kernel is linked at -2 GiB and is not relocatable.

fn main() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/kernel.ld");
    println!("cargo:rerun-if-changed={script}");
    // Builds for the host, which serve checks and lints, are not linked. Only builds for the bare target get the
    // arguments.
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("none") {
        println!("cargo:rustc-link-arg-bins=-T{script}");
        println!("cargo:rustc-link-arg-bins=-no-pie");
        println!("cargo:rustc-link-arg-bins=--no-dynamic-linker");
        println!("cargo:rustc-link-arg-bins=-zmax-page-size=4096");
        // A profile by source line requires the build ID. The build ID shows that the debug information belongs to this
        // image.
        println!("cargo:rustc-link-arg-bins=--build-id=sha1");
    }
}
