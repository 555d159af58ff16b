//! Passes the rule of a change of many entries to the loop over the entries, without the feature `inline`: the loop is
//! compiled once, and calls the rule through a pointer.

/// Evaluates an expression in which a name stands for a reference to the rule.
macro_rules! with_rule {
    ($name:ident = $rule:expr, $call:expr) => {{
        let mut rule = $rule;
        let $name: &mut dyn FnMut(Bits, PageSize) -> Edit = &mut rule;
        $call
    }};
}

pub(super) use with_rule;
