//! Passes the rule of a change of many entries to the loop over the entries, which is compiled separately for each
//! rule.

/// Evaluates an expression in which a name stands for the rule.
macro_rules! with_rule {
    ($name:ident = $rule:expr, $call:expr) => {{
        let $name = $rule;
        $call
    }};
}

pub(super) use with_rule;
