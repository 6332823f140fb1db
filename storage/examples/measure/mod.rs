//! What an operation costs: CPU µs of the whole process, and how many there are a second.

use std::time::Instant;

use tokio::task::JoinSet;

/// Runs `0..count` on so many tasks, each its share, and prints what one cost.
pub(crate) async fn measure<B, F>(
    bench: &B,
    tasks: u32,
    name: &str,
    count: u32,
    operation: fn(B, u32) -> F,
) where
    B: Clone + Send + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let (cpu, wall) = (cpu_us(), Instant::now());
    let mut running = JoinSet::new();
    for task in 0..tasks {
        let bench = bench.clone();
        running.spawn(async move {
            for number in (task..count).step_by(tasks as usize) {
                operation(bench.clone(), number).await;
            }
        });
    }
    running.join_all().await;
    let wall = wall.elapsed().as_secs_f64();
    let each = (cpu_us() - cpu) / f64::from(count);
    println!("{each:8.2} µs CPU {:10.0} /s   {name}", f64::from(count) / wall);
}

/// User and system time of this process so far; Linux counts it in hundredths of a second.
fn cpu_us() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let fields: Vec<&str> = stat.rsplit(')').next().expect("has a name").split(' ').collect();
    let ticks = |at: usize| fields[at].parse::<f64>().expect("a number");
    (ticks(12) + ticks(13)) * 10_000.0
}
