//! Passes the linker script of the architecture to the linker.

use std::env;

fn main() {
    let [system, processor] =
        ["OS", "ARCH"].map(|what| env::var(format!("CARGO_CFG_TARGET_{what}")));
    if system.as_deref() == Ok("none") {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../boot");
        let script = format!("{folder}/{}.ld", processor.unwrap_or_default());
        println!("cargo:rerun-if-changed={script}");
        if env::var_os("CARGO_FEATURE_SV39").is_some() {
            println!("cargo:rustc-link-arg-bins=--defsym=sv39=1");
        }
        for argument in [&format!("-T{script}"), "-no-pie", "--no-dynamic-linker"] {
            println!("cargo:rustc-link-arg-bins={argument}");
        }
    }
}
