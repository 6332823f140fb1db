//! An allocator that counts what each thread allocates and frees, by size.
//!
//! What one thread allocates and another one frees is counted as if it were kept.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// Sizes up to this number of bytes are counted apart.
const BYTES_MAX: usize = 1023;

/// The allocator of the system. A test binary has it as its `#[global_allocator]`.
pub struct Counting;

/// The allocations of a thread that are not freed, and how many it ever made.
#[derive(Clone, Copy)]
pub struct Counts {
    /// By size. The first one is the bytes of larger allocations.
    kept: [i32; BYTES_MAX + 1],
    made: u64,
}

thread_local! {
    static KEPT: [Cell<i32>; BYTES_MAX + 1] = const { [const { Cell::new(0) }; BYTES_MAX + 1] };
    static MADE: Cell<u64> = const { Cell::new(0) };
}

impl Counts {
    /// The counts of this thread so far.
    pub fn of_thread() -> Self {
        let kept = KEPT.with(|kept| std::array::from_fn(|bytes| kept[bytes].get()));
        Self { kept, made: MADE.get() }
    }

    /// What was counted since `before`.
    pub fn since(self, before: &Self) -> Self {
        let kept = std::array::from_fn(|bytes| self.kept[bytes] - before.kept[bytes]);
        Self { kept, made: self.made - before.made }
    }

    /// The bytes that are not freed.
    pub fn bytes(&self) -> i64 {
        self.by_size().map(|(bytes, count)| bytes as i64 * i64::from(count)).sum()
    }

    /// Sizes, and how many allocations of each are not freed. Larger ones count as of one byte.
    pub fn by_size(&self) -> impl Iterator<Item = (usize, i32)> {
        let counts = self.kept.into_iter().enumerate().filter(|(_, count)| *count != 0);
        counts.map(|(bytes, count)| (bytes.max(1), count))
    }

    /// How many allocations were made, freed or not.
    pub fn made(&self) -> u64 {
        self.made
    }
}

fn count(bytes: usize, change: i32) {
    let (at, change) =
        if bytes <= BYTES_MAX { (bytes, change) } else { (0, change * bytes as i32) };
    KEPT.with(|kept| kept[at].set(kept[at].get() + change));
}

// SAFETY: the allocator of the system does what is required. Counting allocates nothing: both thread-local variables
// are constants at first and need no destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 1);
        MADE.set(MADE.get() + 1);
        // SAFETY: the caller keeps the promises of this function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, allocated: *mut u8, layout: Layout) {
        count(layout.size(), -1);
        // SAFETY: the caller keeps the promises of this function.
        unsafe { System.dealloc(allocated, layout) }
    }
}
