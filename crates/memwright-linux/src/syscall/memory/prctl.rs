//! The `prctl` settings of an address space.

use crate::{
    context::{Arguments, CallResult, Context},
    direct_reclaim::Retry,
    errno::Errno,
};
use linux_raw_sys::prctl;
use memwright::{ExecGain, HugeRefusal};

/// Implements `PR_SET_MDWE`: from now on, memory that is not executable cannot become executable. The setting cannot be
/// revoked or changed (`prctl_set_mdwe` of Linux 7.2, `kernel/sys.c`).
pub fn set_exec_gain(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let [_, bits, rest @ .., _] = *arguments;
    let wanted = exec_gain(bits).ok_or(Errno::EINVAL)?;
    if rest != [0; 3] {
        return Err(Errno::EINVAL);
    }
    context.with_space(|space| {
        let now = space.exec_gain();
        if now != ExecGain::Granted && now != wanted {
            return Err(Errno::EPERM);
        }
        space.set_exec_gain(wanted);
        Ok(0)
    })
}

/// Implements `PR_GET_MDWE`.
pub fn get_exec_gain(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let [_, rest @ .., _] = *arguments;
    if rest != [0; 4] {
        return Err(Errno::EINVAL);
    }
    let refuse = u64::from(prctl::PR_MDWE_REFUSE_EXEC_GAIN);
    Ok(match context.with_space(|space| space.exec_gain()) {
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

/// Flag of `PR_SET_THP_DISABLE`: advised areas still get huge pages, `linux/prctl.h` since Linux 6.18.
const PR_THP_DISABLE_EXCEPT_ADVISED: u64 = 1 << 1;

/// Implements `PR_SET_THP_DISABLE` (`prctl_set_thp_disable` of Linux 7.2, `kernel/sys.c`).
pub fn set_huge_refusal(context: &Context<'_>, arguments: &Arguments) -> CallResult {
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
    context.with_space(|space| space.refuse_huge(refusal));
    Ok(0)
}

/// Implements `PR_GET_THP_DISABLE`.
pub fn get_huge_refusal(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let [_, rest @ .., _] = *arguments;
    if rest != [0; 4] {
        return Err(Errno::EINVAL);
    }
    Ok(match context.with_space(|space| space.huge_refusal()) {
        HugeRefusal::Nothing => 0,
        HugeRefusal::Everywhere => 1,
        HugeRefusal::ExceptAdvised => 1 | PR_THP_DISABLE_EXCEPT_ADVISED,
    })
}

/// Implements `PR_SET_MEMORY_MERGE` (`kernel/sys.c` of Linux 7.2).
pub fn set_merging(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let [_, on, rest @ .., _] = *arguments;
    if rest != [0; 3] {
        return Err(Errno::EINVAL);
    }
    let merge = || context.with_space(|space| space.merge_all(on != 0));
    let set = context.kernel.reclaim.retry(merge);
    set.map_err(|_| Errno::ENOMEM)?;
    context.kernel.merge_scan.want();
    Ok(0)
}

/// Implements `PR_GET_MEMORY_MERGE`.
pub fn get_merging(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let [_, rest @ .., _] = *arguments;
    if rest != [0; 4] {
        return Err(Errno::EINVAL);
    }
    Ok(context.with_space(|space| space.merges_all()).into())
}
