//! Derives the state of the memory at a line of a script from the results of the lines before it.

/// Splits a result into the words of the script's line, which are before the colon, and the text after the colon.
pub(super) fn line_of(result: &str) -> Option<(Vec<&str>, &str)> {
    let (line, said) = result.split_once(':')?;
    Some((line.split(' ').collect(), said))
}

/// Returns whether the script has registered memory with a userfaultfd for read-write protection.
pub(super) fn counts_accesses(before: &[String]) -> bool {
    before.iter().any(|result| {
        line_of(result).is_some_and(|(line, said)| {
            let registers = line.get(1) == Some(&"watch") && said.starts_with(" 0");
            registers && line.last().is_some_and(|mode| mode.contains('r'))
        })
    })
}

/// Returns whether the script has moved memory so that its old range, or parts of it, may still be mapped
/// (`MREMAP_DONTUNMAP`).
pub(super) fn was_kept(before: &[String]) -> bool {
    before.iter().any(|result| {
        line_of(result).is_some_and(|(line, _)| {
            let keeps = line.last().and_then(|to| to.parse().ok()) >= Some(1000);
            line.get(1) == Some(&"remap") && keeps
        })
    })
}

/// Returns whether the script has registered memory with a userfaultfd.
pub(super) fn was_watched(before: &[String]) -> bool {
    before.iter().any(|result| {
        line_of(result)
            .is_some_and(|(line, said)| line.get(1) == Some(&"watch") && said.starts_with(" 0"))
    })
}

/// Returns whether the script has moved memory after it registered memory with a userfaultfd.
pub(super) fn was_moved_watched(before: &[String]) -> bool {
    let moves =
        |result: &String| line_of(result).is_some_and(|(line, _)| line.get(1) == Some(&"remap"));
    let last = before.iter().rposition(moves);
    last.is_some_and(|last| was_watched(&before[..last]))
}

/// Returns whether memory was freed lazily (`MADV_FREE`) while a child existed.
pub(super) fn was_freed(before: &[String]) -> bool {
    let mut child = false;
    before.iter().any(|result| match line_of(result) {
        Some((line, said)) => {
            child = (child || line.get(1) == Some(&"fork")) && line.get(1) != Some(&"join");
            let frees = line.get(1) == Some(&"advise") && line.last() == Some(&"8");
            child && frees && said.starts_with(" 0")
        }
        None => false,
    })
}

/// Returns false only if a page is certainly registered for write protection: the last operation that changed the
/// registration of its area registered the area for write protection, and no monitor closes a userfaultfd or
/// unregisters pages.
pub(super) fn is_not_protected(before: &[String], page: u64) -> bool {
    let last = before.iter().rev().find_map(|result| {
        let (line, said) = line_of(result)?;
        let number = |at: usize| line.get(at)?.parse::<u64>().ok();
        let (name, start, length) = (*line.get(1)?, number(2)?, number(3)?);
        let placed = said
            .strip_prefix(" page ")
            .and_then(|at| at.parse::<u64>().ok());
        // A move that fails can have moved some areas. The last word of the line is then the target: the page plus 1000
        // times the flags.
        let start = match name {
            "remap" => placed.or_else(|| Some(number(5)? % 1000))?,
            _ => start,
        };
        let failed = said.starts_with(" errno") && name != "remap";
        let covers = (start..start + length).contains(&page) && !failed;
        match name {
            "map" | "unmap" | "remap" | "unwatch" if covers => Some(false),
            "watch" if covers => Some(line.last()?.contains('w')),
            _ => None,
        }
    });
    last != Some(true) || before.iter().any(|result| ends_registrations(result))
}

/// Returns whether the result says that the monitor has closed a userfaultfd, or that it answers faults by
/// unregistering pages.
fn ends_registrations(result: &str) -> bool {
    let answers = line_of(result).filter(|(line, _)| line.get(1) == Some(&"agree"));
    let unregisters = answers.is_some_and(|(line, _)| line.last().is_some_and(|a| a.contains('u')));
    unregisters || result.contains(" and closed")
}
