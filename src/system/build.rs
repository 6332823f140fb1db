//! From which sources this program was built: `build.rs` reads it from git.

/// A version, and the commit with its date. `unknown` where the sources have no history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Build {
    pub version: &'static str,
    pub commit: &'static str,
    pub date: &'static str,
}

impl Build {
    pub const THIS: Self = Self {
        version: env!("CARGO_PKG_VERSION"),
        commit: env!("BUILD_COMMIT"),
        date: env!("BUILD_DATE"),
    };

    /// All of it as a text.
    pub const TEXT: &'static str = concat!(
        env!("CARGO_PKG_VERSION"),
        " (",
        env!("BUILD_COMMIT"),
        ", ",
        env!("BUILD_DATE"),
        ")"
    );
}
