//! Short names of functions.

/// Returns the name of a function, with the name of its type, from its complete path. For a closure, returns the name
/// of the function that contains it.
pub fn short(path: &str) -> String {
    let segments: Vec<&str> = segments(path)
        .into_iter()
        .filter(|segment| !segment.starts_with('{'))
        .collect();
    // A segment in angle brackets is not a name: `<A, B>` contains the generic arguments of a function, and the first
    // segment contains the type of a method.
    let named = |segment: &&&str| !segment.starts_with('<');
    let last = segments.iter().rfind(named).copied().unwrap_or(path);
    match segments.first().and_then(|first| of_type(first)) {
        Some(one) => format!("{one}::{last}"),
        None => last.to_owned(),
    }
}

/// Returns the name of the type in `<a::Type<B>>` or `<a::Type<B> as c::Trait>`.
fn of_type(segment: &str) -> Option<&str> {
    let inside = segment.strip_prefix('<')?.strip_suffix('>')?;
    let (path, _) = split_at_depth_zero(inside, " as ").unwrap_or((inside, ""));
    let path = path
        .trim_start_matches(['&', '*'])
        .trim_start_matches("mut ");
    // The type can itself be inside the path of a method: `<<a::Type>::f as Trait>`.
    let last = segments(path)
        .into_iter()
        .rfind(|segment| !segment.starts_with(['<', '{']))?;
    Some(last.split('<').next().unwrap_or(last))
}

/// Splits a path at each `::` that is not in brackets.
fn segments(path: &str) -> Vec<&str> {
    let mut segments = Vec::new();
    let mut rest = path;
    while let Some((first, after)) = split_at_depth_zero(rest, "::") {
        segments.push(first);
        rest = after;
    }
    segments.push(rest);
    segments
}

/// Splits a text at the first occurrence of `separator` that is not in brackets.
fn split_at_depth_zero<'a>(text: &'a str, separator: &str) -> Option<(&'a str, &'a str)> {
    let mut depth = 0u32;
    let mut before = ' ';
    for (index, letter) in text.char_indices() {
        if depth == 0 && text[index..].starts_with(separator) {
            return Some((&text[..index], &text[index + separator.len()..]));
        }
        match letter {
            '<' | '(' | '[' | '{' => depth += 1,
            // `->` is no bracket.
            '>' if before == '-' => {}
            '>' | ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        before = letter;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn names_are_those_that_the_source_has() {
        for (path, expected) in [
            ("a::b::f", "f"),
            ("a::b::f::<a::T, fn(u8) -> u8>", "f"),
            ("a::b::f::{closure#0}::{closure#1}", "f"),
            ("<a::b::Type>::f", "Type::f"),
            (
                "<a::b::Type<c::D<e::F>>>::f::<g::H>::{closure#0}",
                "Type::f",
            ),
            ("<a::Type<b::C> as d::Trait<e::F>>::f", "Type::f"),
            ("<&mut a::Type as d::Trait>::f", "Type::f"),
            ("<a::Type<fn(a::X) -> b::Y> as c::Trait>::f", "Type::f"),
        ] {
            assert_eq!(short(path), expected, "{path}");
        }
    }
}
