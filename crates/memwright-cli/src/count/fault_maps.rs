//! The maps of the processes of a run, as `/proc/PID/maps` shows them.

use std::collections::BTreeMap;

/// An area of memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Area {
    /// The address of the first byte.
    pub start: u64,
    end: u64,
    /// The offset in the file.
    pub offset: u64,
    /// The path of the file, or the name of an area without a file; empty if the area has neither.
    pub name: String,
}

/// The maps of one image: the program that one exec of the run started, in all its processes.
#[derive(Debug, Default)]
struct Image {
    name: String,
    /// The maps at several times, in the order of time.
    maps: Vec<Vec<Area>>,
}

/// The maps of the processes of a run, by image.
#[derive(Debug, Default)]
pub struct Maps(BTreeMap<u32, Image>);

impl Maps {
    /// Adds a frame of `programs/lab/maps.c`: a line with the number of the image, the process ID and the name of the
    /// process, then the text of the maps. Other text is ignored.
    pub fn add(&mut self, frame: &[u8]) {
        let text = String::from_utf8_lossy(frame);
        let Some((first, rest)) = text.split_once('\n') else {
            return;
        };
        let mut words = first.splitn(3, ' ');
        let Some(image) = words.next().and_then(|word| word.parse().ok()) else {
            return;
        };
        let image: &mut Image = self.0.entry(image).or_default();
        if image.name.is_empty() {
            words.nth(1).unwrap_or_default().clone_into(&mut image.name);
        }
        image.maps.push(rest.lines().filter_map(area).collect());
    }

    /// Returns the area of an image that contains an address. If maps of several times have such an area, returns that
    /// of the earliest.
    pub fn find(&self, image: u32, address: u64) -> Option<&Area> {
        let mut areas = self.0.get(&image)?.maps.iter().flatten();
        areas.find(|area| (area.start..area.end).contains(&address))
    }

    /// Returns the name of the first process of an image; empty if it is not known.
    pub fn name(&self, image: u32) -> &str {
        self.0.get(&image).map_or("", |image| &image.name)
    }
}

/// Parses a line of `/proc/PID/maps`: `START-END RIGHTS OFFSET DEVICE INODE NAME`.
fn area(line: &str) -> Option<Area> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    // The name can contain blanks. Blanks before the name only align it.
    let mut words = rest.splitn(5, ' ');
    let offset = words.nth(1)?;
    let name = words.nth(2).unwrap_or_default().trim_start();
    Some(Area {
        start: number(start)?,
        end: number(end)?,
        offset: number(offset)?,
        name: name.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_maps_parse() {
        for (line, expected) in [
            (
                "7ffff7d8a000-7ffff7f13000 r-xp 00028000 00:02 1234                       /lib/a b.so",
                Some((0x7fff_f7d8_a000, 0x28000, "/lib/a b.so")),
            ),
            (
                "7ffff7fbd000-7ffff7fc1000 rw-p 00000000 00:00 0 ",
                Some((0x7fff_f7fb_d000, 0, "")),
            ),
            (
                "00405000-00406000 rw-p 00000000 00:00 0                                  [heap]",
                Some((0x40_5000, 0, "[heap]")),
            ),
            ("no area", None),
            ("", None),
        ] {
            let found = area(line);
            let found = found
                .as_ref()
                .map(|one| (one.start, one.offset, &*one.name));
            assert_eq!(found, expected, "{line}");
        }
    }

    #[test]
    fn memory_that_is_gone_later_is_found() {
        let mut maps = Maps::default();
        for text in [
            "1 2 sh\n1000-2000 rw-p 0 0:0 0 /one\n",
            "1 2 sh\n1000-2000 rw-p 0 0:0 0 /two\n5000-6000 rw-p 0 0:0 0 /three\n",
            "2 3 ls x\n",
            "nonsense",
            "x y\n",
        ] {
            maps.add(text.as_bytes());
        }
        let name = |image, address| maps.find(image, address).map(|area| &*area.name);
        assert_eq!(name(1, 0x1fff), Some("/one"));
        assert_eq!(name(1, 0x5000), Some("/three"));
        assert_eq!(
            (name(1, 0x2000), name(2, 0x1000), name(3, 0)),
            (None, None, None)
        );
        assert_eq!(
            (maps.name(1), maps.name(2), maps.name(3)),
            ("sh", "ls x", "")
        );
    }
}
