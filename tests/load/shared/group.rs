//! A process group of programs that end with this process, also if it is killed.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;

/// A process group, which is killed when this is dropped and when this process ends. Its leader is a shell that waits
/// for the end of its input.
pub(crate) struct Group(Child);

impl Group {
    pub(crate) fn new() -> Self {
        let mut leader = Command::new("sh");
        leader.args(["-c", "read -r _; kill -KILL 0"]).process_group(0);
        leader.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        Self(leader.spawn().expect("a shell can be started"))
    }

    pub(crate) fn kill(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }

    pub(crate) fn id(&self) -> i32 {
        self.0.id().try_into().expect("Linux has no greater ids")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The group that ends with this process.
pub(crate) fn own_group() -> i32 {
    static OWN: LazyLock<Group> = LazyLock::new(Group::new);
    OWN.id()
}
