//! The job of `kalends backup`: the files of the store are copied as they were at one moment.

use storage::StoreFuture;
use tokio::sync::watch;

use super::{JobError, Report};

/// Pages of 4 KiB that are copied, and all of them.
type Pages = (u64, u64);

pub(super) async fn run(report: &Report) -> Result<(), JobError> {
    report.check_stopped()?;
    let (steps, mut copied) = watch::channel::<Pages>((0, 0));
    // The send fails when the job has stopped, which ends the copy.
    let on_step = Box::new(move |done, of| steps.send((done, of)).is_ok());
    let copy: StoreFuture<()> = report.context.store.snapshot(on_step);
    let copy = tokio::spawn(copy);
    while report.or_interrupted(copied.changed()).await?.is_ok() {
        let (done, of) = *copied.borrow_and_update();
        report.progress("copying pages", done, Some(of));
    }
    drop(copied);
    Ok(copy.await.expect("a copy does not panic")?)
}
