//! Maps a program into an address space.

use super::elf::Plan;
use alloc::{sync::Arc, vec::Vec};
use memwright::{AreaFlags, MapRequest, Placement, Rights};
use memwright_linux_abi::{M, Space, errno::Errno};
use memwright_linux_memory::{memory::map_errno, reclaim::Reclaim};
use memwright_linux_vfs::{
    direct_reclaim::Retry,
    fs::{Executable, vfs::Vfs},
};
use memwright_table::{TryPush, VirtAddr};

const PAGE: u64 = 4096;

/// Where a relocatable image is mapped.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Base {
    /// At the lowest address that is not below this one and has the image's alignment.
    At(u64),
    /// In any gap that is large enough for the image.
    Anywhere,
}

/// Maps the segments of a program. Returns the load bias.
pub(super) fn map_image(
    reclaim: &Reclaim,
    space: &Arc<Space>,
    file: &Arc<Executable>,
    plan: &Plan,
    base: Base,
) -> Result<u64, Errno> {
    let bias = match (plan.header.relocatable, base) {
        (false, _) => 0,
        (true, Base::At(address)) => address
            .next_multiple_of(plan.alignment)
            .wrapping_sub(plan.start()),
        (true, Base::Anywhere) => find_room(reclaim, space, plan)?.wrapping_sub(plan.start()),
    };
    for segment in &plan.segments {
        let start = segment.address.wrapping_add(bias);
        let first = start & !(PAGE - 1);
        let file_end = start + segment.file_size;
        let end = (start + segment.memory_size).next_multiple_of(PAGE);
        let mut mapped_end = first;
        if segment.file_size > 0 {
            mapped_end = file_end.next_multiple_of(PAGE);
            let object = file.object();
            let offset = segment.offset & !(PAGE - 1);
            let length = mapped_end - first;
            let request = MapRequest::object(object, offset, length, segment.rights, false);
            place(reclaim, space, request, first)?;
            if segment.memory_size > segment.file_size
                && mapped_end > file_end
                && segment.rights.contains(Rights::WRITE)
            {
                // Zero the rest of the page, like Linux does (fs/binfmt_elf.c, `padzero`): the first allocations of a
                // loader are directly after its data, and the loader relies on zeros there.
                let zeroes = [0; PAGE as usize];
                let tail = mapped_end - file_end;
                let (at, zeroes) = (VirtAddr::new(file_end), &zeroes[..tail as usize]);
                let cleared = reclaim.retry(|| space.write(at, zeroes));
                cleared.map_err(|_| Errno::ENOMEM)?;
            }
        }
        if end > mapped_end {
            let request = MapRequest::anonymous(end - mapped_end, segment.rights);
            place(reclaim, space, request, mapped_end)?;
        }
    }
    Ok(bias)
}

fn place(
    reclaim: &Reclaim,
    space: &Space,
    request: MapRequest<M>,
    address: u64,
) -> Result<(), Errno> {
    let request = request.at(Placement::Fixed(VirtAddr::new(address)));
    let mapped = reclaim.retry(|| space.map(&request));
    mapped.map(|_| ()).map_err(map_errno)
}

/// Returns the address of a gap that is large enough for a whole image. Finds the gap by mapping and unmapping an area
/// of that size.
fn find_room(reclaim: &Reclaim, space: &Space, plan: &Plan) -> Result<u64, Errno> {
    let length = plan.end() - plan.start();
    let slack = plan.alignment - PAGE;
    let request = MapRequest::anonymous(length + slack, Rights::empty()).with(AreaFlags::NORESERVE);
    let address = reclaim.retry(|| space.map(&request)).map_err(map_errno)?;
    reclaim
        .retry(|| space.unmap(address, length + slack))
        .map_err(|_| Errno::ENOMEM)?;
    Ok(address.as_u64().next_multiple_of(plan.alignment))
}

/// Reads up to `length` bytes of a file, starting at `offset`.
pub(super) fn read(
    vfs: &Vfs,
    file: &Executable,
    offset: u64,
    length: usize,
) -> Result<Vec<u8>, Errno> {
    let mut bytes = Vec::new();
    bytes.try_fill(length, 0).map_err(|_| Errno::ENOMEM)?;
    let count = file.read_at(vfs, offset, &mut bytes)?;
    bytes.truncate(count);
    Ok(bytes)
}

/// Reads the headers of a program and plans the loading of the program.
pub(super) fn read_plan(vfs: &Vfs, file: &Executable) -> Result<Plan, Errno> {
    let first = read(vfs, file, 0, super::elf::HEADER_SIZE)?;
    let header = super::elf::parse_header(&first).map_err(super::ElfError::errno)?;
    let size = header.headers * super::elf::PROGRAM_HEADER_SIZE;
    let headers = read(vfs, file, header.headers_offset, size)?;
    if headers.len() < size {
        return Err(Errno::ENOEXEC);
    }
    super::elf::plan(header, &headers, file.size()).map_err(super::ElfError::errno)
}

/// Reads the path of the program's interpreter. Returns `None` if the program has no interpreter.
pub(super) fn interpreter_path(
    vfs: &Vfs,
    file: &Executable,
    plan: &Plan,
) -> Result<Option<Vec<u8>>, Errno> {
    let Some((offset, length)) = plan.interpreter else {
        return Ok(None);
    };
    let mut path = read(vfs, file, offset, length)?;
    if path.pop() != Some(0) {
        return Err(Errno::ENOEXEC);
    }
    let end = path
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(path.len());
    path.truncate(end);
    Ok(Some(path))
}
