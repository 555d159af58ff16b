//! The disk of a guest: a sparse file that exists as long as the run.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::Path;

use memwright_linux_abi::channel::{DISK_QUEUE, DISK_SLOT};

use crate::model::size::MemorySize;
use crate::qemu::command::option;

/// Creates the file that backs the disk. The caller removes it after the run.
///
/// # Errors
/// I/O errors of creating a file.
pub fn make(path: &Path, size: MemorySize) -> io::Result<()> {
    File::create_new(path)?.set_len(size.bytes())
}

/// Returns QEMU's arguments for the disk.
pub fn arguments(path: &Path) -> [OsString; 4] {
    let drive = "if=none,id=disk,format=raw,cache=unsafe,aio=threads,file=";
    let device = "virtio-blk-pci,drive=disk,disable-legacy=off,disable-modern=on,num-queues=1";
    // By default, QEMU pauses the machine if the host's disk is full, and the run would not end. With `report`, the
    // guest gets an I/O error instead.
    let device = format!("{device},werror=report,rerror=report");
    let device = format!("{device},queue-size={DISK_QUEUE},addr={DISK_SLOT}");
    [
        "-drive".into(),
        option(drive, path),
        "-device".into(),
        device.into(),
    ]
}
