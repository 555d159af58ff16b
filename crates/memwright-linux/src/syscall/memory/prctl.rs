//! The `prctl` settings of an address space.

use crate::{
    context::{Arguments, CallResult},
    current::Current,
};
use alloc::sync::Arc;
use linux_raw_sys::prctl;
use memwright::{AreaName, ExecGain, HugeRefusal};
use memwright_linux_abi::errno::Errno;
use memwright_linux_memory::{memory::name_errno, merge_scan::MergeScan};
use memwright_linux_vfs::direct_reclaim::Retry;
use memwright_table::VirtAddr;

/// Maximum size in bytes of a name of anonymous memory, including the NUL (`ANON_VMA_NAME_MAX_LEN` of Linux 7.2).
const LONGEST_NAME: usize = 80;

/// Implements `PR_SET_MDWE`: from now on, memory that is not executable cannot become executable. The setting cannot be
/// changed any more (`prctl_set_mdwe` of Linux 7.2, `kernel/sys.c`).
pub fn set_exec_gain(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let [_, bits, rest @ .., _] = *arguments;
    let wanted = exec_gain(bits).ok_or(Errno::EINVAL)?;
    if rest != [0; 3] {
        return Err(Errno::EINVAL);
    }
    current.with_space(|space| {
        let now = space.exec_gain();
        if now != ExecGain::Granted && now != wanted {
            return Err(Errno::EPERM);
        }
        space.set_exec_gain(wanted);
        Ok(0)
    })
}

/// Implements `PR_GET_MDWE`.
pub fn get_exec_gain(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let [_, rest @ .., _] = *arguments;
    if rest != [0; 4] {
        return Err(Errno::EINVAL);
    }
    let refuse = u64::from(prctl::PR_MDWE_REFUSE_EXEC_GAIN);
    Ok(match current.with_space(|space| space.exec_gain()) {
        ExecGain::Granted => 0,
        ExecGain::Refused { inherited: true } => refuse,
        ExecGain::Refused { inherited: false } => refuse | u64::from(prctl::PR_MDWE_NO_INHERIT),
    })
}

/// Decodes the bits of `PR_SET_MDWE`.
fn exec_gain(bits: u64) -> Option<ExecGain> {
    let refuse = u64::from(prctl::PR_MDWE_REFUSE_EXEC_GAIN);
    let alone = refuse | u64::from(prctl::PR_MDWE_NO_INHERIT);
    match bits {
        0 => Some(ExecGain::Granted),
        bits if bits == refuse => Some(ExecGain::Refused { inherited: true }),
        bits if bits == alone => Some(ExecGain::Refused { inherited: false }),
        _ => None,
    }
}

/// Flag of `PR_SET_THP_DISABLE`: areas with `MADV_HUGEPAGE` still get huge pages (`linux/prctl.h` since Linux 6.18).
const PR_THP_DISABLE_EXCEPT_ADVISED: u64 = 1 << 1;

/// Implements `PR_SET_THP_DISABLE` (`prctl_set_thp_disable` of Linux 7.2, `kernel/sys.c`).
pub fn set_huge_refusal(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let [_, disable, flags, rest @ .., _] = *arguments;
    if rest != [0; 2] {
        return Err(Errno::EINVAL);
    }
    let refusal = match (disable != 0, flags) {
        (false, 0) => HugeRefusal::Nothing,
        (true, 0) => HugeRefusal::Everywhere,
        (true, PR_THP_DISABLE_EXCEPT_ADVISED) => HugeRefusal::ExceptAdvised,
        (false | true, _) => return Err(Errno::EINVAL),
    };
    current.with_space(|space| space.huge_pages().refuse(refusal));
    Ok(0)
}

/// Implements `PR_GET_THP_DISABLE`.
pub fn get_huge_refusal(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let [_, rest @ .., _] = *arguments;
    if rest != [0; 4] {
        return Err(Errno::EINVAL);
    }
    Ok(
        match current.with_space(|space| space.huge_pages().refusal()) {
            HugeRefusal::Nothing => 0,
            HugeRefusal::Everywhere => 1,
            HugeRefusal::ExceptAdvised => 1 | PR_THP_DISABLE_EXCEPT_ADVISED,
        },
    )
}

/// Implements `PR_SET_MEMORY_MERGE` (`kernel/sys.c` of Linux 7.2).
pub fn set_merging(
    current: &Current<'_>,
    merge_scan: &MergeScan,
    arguments: &Arguments,
) -> CallResult {
    let [_, on, rest @ .., _] = *arguments;
    if rest != [0; 3] {
        return Err(Errno::EINVAL);
    }
    let merge = || current.with_space(|space| space.ksm().merge_all(on != 0));
    let set = current.reclaim().retry(merge);
    set.map_err(|_| Errno::ENOMEM)?;
    merge_scan.want();
    Ok(0)
}

/// Implements `PR_GET_MEMORY_MERGE`.
pub fn get_merging(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let [_, rest @ .., _] = *arguments;
    if rest != [0; 4] {
        return Err(Errno::EINVAL);
    }
    Ok(current.with_space(|space| space.ksm().merges_all()).into())
}

/// Implements `PR_SET_VMA`. Its only attribute is the name of anonymous memory (`kernel/sys.c` of Linux 7.2).
pub fn set_area_attribute(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let &[_, attribute, address, length, name, _] = arguments;
    if attribute as u32 != prctl::PR_SET_VMA_ANON_NAME {
        return Err(Errno::EINVAL);
    }
    current.caller().check_heap()?;
    let name = match name {
        0 => None,
        at => {
            let bytes = current.user.read_string(at, LONGEST_NAME, Errno::EINVAL)?;
            if !is_name(&bytes) {
                return Err(Errno::EINVAL);
            }
            Some(Arc::new(AreaName::new(bytes)))
        }
    };
    let address = VirtAddr::new(address);
    let set = || current.with_space(|space| space.name_memory(address, length, name.as_ref()));
    current.reclaim().retry(set).map_err(name_errno)?;
    Ok(0)
}

/// Returns whether `bytes` is a valid name of memory: visible characters and spaces, except those with another meaning
/// in the lines of `/proc/PID/maps` (`is_valid_name_char`).
fn is_name(bytes: &[u8]) -> bool {
    let allowed = |byte: &u8| matches!(byte, b' '..=b'~') && !b"\\`$[]".contains(byte);
    bytes.iter().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::is_name;

    #[test]
    fn names_consist_of_visible_characters() {
        for (bytes, valid) in [
            (&b""[..], true),
            (b"Go: heap", true),
            (b"a~b", true),
            (b"a\nb", false),
            (b"\x7f", false),
            (b"\xc3\xa9", false),
            (b"[heap]", false),
            (b"a`b", false),
            (b"$HOME", false),
            (b"a\\b", false),
        ] {
            assert_eq!(is_name(bytes), valid, "{bytes:?}");
        }
    }
}
