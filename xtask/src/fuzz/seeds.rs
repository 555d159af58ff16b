//! The seeds of several searches, which are given or random.

use std::io::Read;

use anyhow::{Context, Result, bail};

/// The prefix in `random:N`, which requests N random seeds.
const RANDOM: &str = "random:";
/// The maximum number of seeds.
const MOST: u64 = 1_000_000;

/// Parses the seeds `A,B,...`, each of which may be a range `A-B`, or draws N random seeds for `random:N`.
///
/// # Errors
/// If the text is not a list of numbers, if there are more than [`MOST`] seeds, or if no random numbers are available.
pub fn parse(text: &str) -> Result<Vec<u64>> {
    let mut seeds: Vec<u64> = Vec::new();
    match text.strip_prefix(RANDOM) {
        Some(count) => seeds = draw(count.parse().context("--seeds random:N")?)?,
        None => {
            for part in text.split(',') {
                let (first, last) = part.split_once('-').unwrap_or((part, part));
                let [first, last] = [first, last].map(|seed| seed.parse::<u64>());
                let (first, last) = (
                    first.context("--seeds A,B-C,...")?,
                    last.context("--seeds A,B-C,...")?,
                );
                let more = last
                    .checked_sub(first)
                    .with_context(|| format!("--seeds {part}: no seed"))?;
                if more >= MOST - seeds.len() as u64 {
                    bail!("--seeds: more than {MOST}");
                }
                seeds.extend(first..=last);
            }
        }
    }
    if seeds.is_empty() {
        bail!("--seeds names no seed");
    }
    Ok(seeds)
}

/// Returns whether the text requests random seeds, which differ in every run.
pub fn are_random(text: &str) -> bool {
    text.starts_with(RANDOM)
}

/// Draws `count` random seeds.
fn draw(count: usize) -> Result<Vec<u64>> {
    let mut bytes = vec![0; count * 4];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .context("cannot read /dev/urandom")?;
    let number = |four: &[u8]| u64::from(u32::from_le_bytes([four[0], four[1], four[2], four[3]]));
    Ok(bytes.chunks_exact(4).map(number).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_given_or_drawn() {
        assert_eq!(parse("3,1,4294967295").unwrap(), [3, 1, 4_294_967_295]);
        assert_eq!(parse("7,1-3,5-5").unwrap(), [7, 1, 2, 3, 5]);
        assert_eq!(parse("random:5").unwrap().len(), 5);
        for text in [
            "",
            "random:",
            "random:0",
            "1,,2",
            "one",
            "3-1",
            "1-",
            "0-1000000",
            "0-18446744073709551615",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
