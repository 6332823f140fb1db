//! Former names of commands and settings. Those of before 1.0 do not work; an error that meets one names its successor.

/// Former commands, each with the words to write instead.
pub(crate) const COMMANDS: [(&str, &str); 7] = [
    ("connect", "serve --role connection"),
    ("endpoint", "serve --role endpoint"),
    ("listen", "subscribe"),
    ("replay", "dev replay"),
    ("states", "dev states"),
    ("tables ensure", "tables create"),
    ("users drop-stale", "users drop-inactive"),
];

/// Names of settings of 1.x, each with its name of today. They work, with a warning, until 2.0 (docs/stability.md).
pub(super) const KEPT: Kept = &[];

pub(super) type Kept = &'static [(&'static str, &'static str)];

/// Settings of before 1.0, each with its name of today.
pub(crate) const SETTINGS: [(&str, &str); 8] = [
    ("ack_waiters_max", "pushes_awaiting_ack_max"),
    ("broadcast_spread_ms", "broadcast_fanout_ms"),
    ("drain_notice_s", "drain_lame_duck_s"),
    ("hellos_per_second_max", "connects_per_second_max"),
    ("last_connect_spread", "last_connect_shards"),
    ("node_nudges_max", "peer_pending_notifications_max"),
    ("node_rest_max_ms", "peer_backoff_max_ms"),
    ("node_rest_ms", "peer_backoff_ms"),
];

/// What to write if the arguments of `kalends` begin with a former command.
pub fn command<S: AsRef<str>>(words: &[S]) -> Option<String> {
    let starts = |former: &str| {
        let mut words = words.iter().map(AsRef::as_ref);
        former.split(' ').all(|part| words.next() == Some(part))
    };
    let (former, now) = COMMANDS.iter().find(|(former, _)| starts(former))?;
    Some(format!("`kalends {former}` is `kalends {now}` now"))
}

/// What to write instead of the flag of a former setting; the flag may have a value after `=`.
pub fn flag(word: &str) -> Option<String> {
    let flag = word.split('=').next()?;
    let now = setting(&flag.strip_prefix("--")?.replace('-', "_"))?;
    Some(format!("`{flag}` is `--{}` now", now.replace('_', "-")))
}

/// Today's name of a former setting.
pub fn setting(former: &str) -> Option<&'static str> {
    SETTINGS.iter().find(|(name, _)| *name == former).map(|(_, now)| *now)
}
