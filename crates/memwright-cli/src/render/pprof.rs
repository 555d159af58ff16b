//! Renders a profile in the format of pprof (proto/profile.proto of github.com/google/pprof), which `go tool pprof`
//! reads.

use prost::Message;

use crate::model::profile::Profile;

#[derive(Clone, PartialEq, Message)]
struct File {
    #[prost(message, repeated, tag = "1")]
    sample_types: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<Sample>,
    #[prost(message, repeated, tag = "4")]
    locations: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    functions: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    strings: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct ValueType {
    #[prost(int64, tag = "1")]
    kind: i64,
    #[prost(int64, tag = "2")]
    unit: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    /// The locations of a call chain, innermost first.
    #[prost(uint64, repeated, tag = "1")]
    locations: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    values: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(message, repeated, tag = "4")]
    lines: Vec<Line>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Line {
    #[prost(uint64, tag = "1")]
    function: u64,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Function {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
}

/// Returns the profile in the format of pprof. Each function has one location. The ID of the function and the ID of the
/// location are the function's index plus 1.
pub fn bytes(profile: &Profile) -> Vec<u8> {
    let mut strings = vec![String::new(), "instructions".to_owned(), "count".to_owned()];
    let first_name = strings.len() as i64;
    strings.extend(profile.functions.iter().cloned());
    let ids = 1..=profile.functions.len() as u64;
    let location = |id| Location {
        id,
        lines: vec![Line { function: id }],
    };
    let function = |id: u64| Function {
        id,
        name: first_name + id as i64 - 1,
    };
    let with_instructions =
        (0..profile.calls.len()).filter(|place| profile.calls[*place].instructions > 0);
    let sample = |place: usize| Sample {
        locations: chain(profile, place),
        values: vec![profile.calls[place].instructions as i64],
    };
    File {
        sample_types: vec![ValueType { kind: 1, unit: 2 }],
        samples: with_instructions.map(sample).collect(),
        locations: ids.clone().map(location).collect(),
        functions: ids.map(function).collect(),
        strings,
    }
    .encode_to_vec()
}

/// Returns the locations of a node and of all its callers.
fn chain(profile: &Profile, place: usize) -> Vec<u64> {
    let mut locations = Vec::new();
    let mut next = Some(place);
    while let Some(place) = next {
        let call = &profile.calls[place];
        locations.push(u64::from(call.function) + 1);
        next = call.caller.map(|caller| caller as usize);
    }
    locations
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::profile::tests::profile;

    #[test]
    fn samples_are_chains_from_the_inside() {
        let bytes = bytes(&profile(&[(None, 0, 1), (Some(0), 1, 10), (None, 2, 0)]));
        let file = File::decode(&*bytes).unwrap();
        let samples: Vec<(Vec<u64>, i64)> = file
            .samples
            .into_iter()
            .map(|sample| (sample.locations, sample.values[0]))
            .collect();
        assert_eq!(samples, [(vec![1], 1), (vec![2, 1], 10)]);
        let name = file.functions[1].name;
        assert_eq!(file.strings[usize::try_from(name).unwrap()], "b");
    }
}
