//! Matches the subtests of two runs.

/// The key by which a subtest is matched: its number and its name.
pub type Label<'a> = (u32, &'a str);

/// Returns, for each label, the index of the same subtest in `others`, if there is one. If both lists have the same
/// length, subtests with the same number match, otherwise those with the same name. Repeated names match in order, and
/// an empty name matches no label.
pub fn matches(labels: &[Label<'_>], others: &[Label<'_>]) -> Vec<Option<usize>> {
    let by_number = labels.len() == others.len();
    let mut taken = vec![false; others.len()];
    let mut find = |&(number, name): &Label<'_>| {
        let is_same = |other: &Label<'_>| match by_number {
            true => other.0 == number,
            false => !name.is_empty() && other.1 == name,
        };
        let found = (0..others.len()).find(|at| !taken[*at] && is_same(&others[*at]));
        if let Some(at) = found {
            taken[at] = true;
        }
        found
    };
    labels.iter().map(&mut find).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subtests_match_by_number_or_else_by_name() {
        let list = [(1, "a"), (2, ""), (3, "a")];
        for (others, expected) in [
            (
                &[(1, "x"), (2, "a"), (3, "z")][..],
                [Some(0), Some(1), Some(2)],
            ),
            (&[(1, "b"), (2, "a")], [Some(1), None, None]),
            (&[(1, "a"), (2, "a")], [Some(0), None, Some(1)]),
            (&[(1, ""), (2, "")], [None, None, None]),
            (&[], [None, None, None]),
        ] {
            assert_eq!(matches(&list, others), expected, "{others:?}");
        }
    }
}
