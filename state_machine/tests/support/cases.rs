//! Which random cases a test tries.

use proptest::test_runner::{Config, RngSeed};

/// The same cases in every run, so that a failure of a change is not a matter of luck. `PROPTEST_RNG_SEED` selects
/// others, as CI does for each of its runs, and `PROPTEST_CASES` more. A failed test prints how to repeat it.
pub(crate) fn config() -> Config {
    const CASES: u32 = 2000;
    let default = Config::default();
    let is_asked_for_more = std::env::var_os("PROPTEST_CASES").is_some();
    let cases = if is_asked_for_more { default.cases } else { CASES };
    let rng_seed = RngSeed::Fixed(seed());
    println!("repeat these cases: PROPTEST_RNG_SEED={} PROPTEST_CASES={cases}", seed());
    Config { cases, rng_seed, failure_persistence: None, max_shrink_iters: 20_000, ..default }
}

/// The seed of everything random in the tests.
pub(crate) fn seed() -> u64 {
    match Config::default().rng_seed {
        RngSeed::Random => 2026,
        RngSeed::Fixed(seed) => seed,
    }
}
