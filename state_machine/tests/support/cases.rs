//! Which random cases a test tries.

use proptest::test_runner::{Config, RngSeed};

/// The same cases in every run, so that a failure is nobody's luck. `PROPTEST_RNG_SEED` and
/// `PROPTEST_CASES` look further.
pub(crate) fn config() -> Config {
    const CASES: u32 = 2000;
    let default = Config::default();
    let is_asked_for_more = std::env::var_os("PROPTEST_CASES").is_some();
    Config {
        cases: if is_asked_for_more { default.cases } else { CASES },
        rng_seed: match default.rng_seed {
            RngSeed::Random => RngSeed::Fixed(2026),
            fixed => fixed,
        },
        failure_persistence: None,
        max_shrink_iters: 20_000,
        ..default
    }
}
