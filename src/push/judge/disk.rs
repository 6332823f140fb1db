//! The free space of a disk, in words.

/// Each is 1024 times the one before.
const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/// A disk with less free space than this many times `disk_free_min` is low.
const LOW: u64 = 4;

pub fn is_low(bytes: u64, min: u64) -> bool {
    bytes < min.saturating_mul(LOW)
}

pub fn free(bytes: u64) -> String {
    format!("{} free", in_unit_of(bytes, bytes))
}

/// The same, of the whole disk: what is free is written as in the sentence of a finding.
pub fn free_of(bytes: u64, min: u64, whole: u64) -> String {
    let size = if is_low(bytes, min) { min } else { bytes };
    format!("{} free of {}", in_unit_of(size, bytes), in_unit_of(whole, whole))
}

/// What is free, and below what messages are refused, in one unit.
pub fn low(bytes: u64, min: u64) -> String {
    let (bytes, min) = (in_unit_of(min, bytes), in_unit_of(min, min));
    format!("{bytes} free, and messages are refused below {min} (disk_free_min)")
}

/// Rounded down, in the unit that suits the size.
fn in_unit_of(size: u64, bytes: u64) -> String {
    let place = size.max(1).ilog2() / 10;
    let tenths = (u128::from(bytes) * 10) >> (10 * place);
    let tenth = match tenths % 10 {
        0 => String::new(),
        tenth => format!(".{tenth}"),
    };
    format!("{}{tenth} {}", tenths / 10, UNITS[place as usize])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_has_one_unit_and_what_is_less_reads_so() {
        const GIB: u64 = 1 << 30;
        for (bytes, min, expected) in [
            (GIB - 1, GIB, "0.9 GiB free, and messages are refused below 1 GiB"),
            (GIB, GIB, "1 GiB free, and messages are refused below 1 GiB"),
            (3 * GIB, GIB - 1, "3072 MiB free, and messages are refused below 1023.9 MiB"),
            (0, 1023, "0 B free, and messages are refused below 1023 B"),
            (u64::MAX, u64::MAX, "15.9 EiB free, and messages are refused below 15.9 EiB"),
        ] {
            assert_eq!(low(bytes, min), format!("{expected} (disk_free_min)"));
            let begin = |text: &str| text.split(" free").next().map(str::to_owned);
            assert_eq!(begin(&free_of(bytes, min, bytes)), begin(expected));
        }
        assert_eq!([0, 1536, u64::MAX].map(free), ["0 B free", "1.5 KiB free", "15.9 EiB free"]);
        assert_eq!(free_of(3 * GIB / 2, GIB / 16, 253 * GIB), "1.5 GiB free of 253 GiB");
    }
}
