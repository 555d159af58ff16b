//! The seeds of several searches, which are given or random.

use std::io::Read;

use anyhow::{Context, Result, bail};

/// Parses the seeds `A,B,...`, or draws N random seeds for `random:N`.
///
/// # Errors
/// If the text is not a list of numbers, or if no random numbers are available.
pub fn parse(text: &str) -> Result<Vec<u64>> {
    let seeds: Vec<u64> = match text.strip_prefix("random:") {
        Some(count) => draw(count.parse().context("--seeds random:N")?)?,
        None => text
            .split(',')
            .map(|seed| seed.parse().context("--seeds A,B,..."))
            .collect::<Result<_>>()?,
    };
    if seeds.is_empty() {
        bail!("--seeds names no seed");
    }
    Ok(seeds)
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
        assert_eq!(parse("random:5").unwrap().len(), 5);
        for text in ["", "random:", "random:0", "1,,2", "one"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
