//! Reports the upgrade of a store to the log and to systemd. An upgrade may take long, and the server answers no request before its
//! end.

use std::time::Duration;

use slog::{Logger, info};
use storage::upgrade::{Upgrade, UpgradeStep, UpgradeWatch};

use super::systemd;

/// The interval of the log lines. The service manager is notified with each of them.
const REPORT_EVERY: Duration = Duration::from_secs(5);

/// What a slow disk, such as an SD card, copies or changes in a second.
const SLOW_DISK_BYTES_PER_S: u64 = 5_000_000;

/// Opens a store with a watch that logs its upgrade.
pub(super) fn logged<T>(log: &Logger, open: impl FnOnce(UpgradeWatch<'_>) -> T) -> T {
    let see = |upgrade: &Upgrade| {
        write(upgrade, log);
        systemd::upgrading(upgrade, log);
    };
    open(UpgradeWatch { every: REPORT_EVERY, see: &see })
}

fn write(upgrade: &Upgrade, log: &Logger) {
    let Upgrade { step, files, bytes, of, elapsed, .. } = *upgrade;
    let percent = upgrade.percent();
    match step {
        UpgradeStep::Begin => {
            info!(log, "upgrading files of an older version before the server listens";
                "files" => files, "bytes" => bytes, "bytes_to_copy" => of - bytes,
                "may_take_s" => of.div_ceil(SLOW_DISK_BYTES_PER_S));
        }
        UpgradeStep::Copy(file) => {
            info!(log, "copying a file before its upgrade"; "file" => %file, "percent" => percent,
                "elapsed_s" => elapsed.as_secs());
        }
        UpgradeStep::Change(file) => {
            info!(log, "upgrading a file"; "file" => %file, "percent" => percent,
                "elapsed_s" => elapsed.as_secs());
        }
        UpgradeStep::Done => {
            info!(log, "upgraded all files of an older version"; "files" => files,
                "took_ms" => elapsed.as_millis() as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use storage::data_dir::FileKey;

    use super::*;
    use crate::system::telemetry::fixture::Log;

    #[test]
    fn each_report_of_an_upgrade_is_a_line_with_its_percentage() {
        let (log, mut lines) = Log::new();
        let at = |step, done, elapsed_s| Upgrade {
            step,
            files: 2,
            bytes: 50_000_000,
            done,
            of: 100_000_000,
            elapsed: Duration::from_secs(elapsed_s),
        };
        let (copy, change) =
            (UpgradeStep::Copy(FileKey::Router), UpgradeStep::Change(FileKey::Router));
        logged(&log, |watch| {
            assert_eq!(watch.every, Duration::from_secs(5));
            for (step, done, elapsed_s) in [
                (UpgradeStep::Begin, 0, 0),
                (copy, 0, 5),
                (copy, 20_999_999, 10),
                (change, 50_000_000, 15),
                (UpgradeStep::Done, 100_000_000, 16),
            ] {
                (watch.see)(&at(step, done, elapsed_s));
            }
        });
        let lines: Vec<_> =
            lines.read().map(|line| format!("{}:{}", line.text, line.fields)).collect();
        let sorted = |line: &str| {
            let mut words: Vec<_> = line.split(' ').map(str::to_owned).collect();
            words.sort();
            words
        };
        for (line, expected) in lines.iter().zip([
            "INFO upgrading files of an older version before the server listens: files=2 bytes=50000000 \
             bytes_to_copy=50000000 may_take_s=20",
            "INFO copying a file before its upgrade: file=router.db percent=0 elapsed_s=5",
            "INFO copying a file before its upgrade: file=router.db percent=20 elapsed_s=10",
            "INFO upgrading a file: file=router.db percent=50 elapsed_s=15",
            "INFO upgraded all files of an older version: files=2 took_ms=16000",
        ]) {
            assert_eq!(sorted(line), sorted(expected));
        }
        assert_eq!(lines.len(), 5);
    }
}
