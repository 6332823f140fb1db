//! A disk in the file system of a test.

use std::cell::OnceCell;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fuser::{BackgroundSession, Config, INodeNo};
use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use tempfile::TempDir;

use crate::adapter::Adapter;
use crate::disk::{Disk, Loss};
use crate::not_run;

/// A mounted disk. Only the thread that made it sees it, with the threads and processes that this one starts later: the
/// mount is in a namespace of this thread.
///
/// Only other processes may map files of it, as SQLite maps `-shm`. A process that maps them itself cannot end when it is
/// killed: the kernel waits for this disk to take the pages, and the disk was in the process.
pub struct Mount {
    home: TempDir,
    disk: Arc<Mutex<Disk>>,
    session: Option<BackgroundSession>,
}

thread_local! {
    /// Whether this thread has a namespace of its own.
    static NAMESPACE: OnceCell<Result<(), Errno>> = const { OnceCell::new() };
}

impl Mount {
    /// Mounts an empty disk. Without FUSE, or the right to mount, notes that `test` did not run.
    pub fn or_not_run(test: &str) -> Option<Self> {
        match Self::new(Disk::default()) {
            Ok(mount) => Some(mount),
            Err(error) => {
                not_run(&format!("{test}: /dev/fuse cannot be mounted: {error}"));
                None
            }
        }
    }

    pub fn new(disk: Disk) -> io::Result<Self> {
        NAMESPACE.with(|namespace| *namespace.get_or_init(own_namespace))?;
        let (home, disk) = (TempDir::new()?, Arc::new(Mutex::new(disk)));
        let session = Some(attach(home.path(), &disk)?);
        Ok(Self { home, disk, session })
    }

    pub fn path(&self) -> &Path {
        self.home.path()
    }

    /// The path of a file.
    pub fn at(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    pub fn disk(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The power goes, and comes back: what is left is mounted in the same place. What still has files open gets errors.
    pub fn lose(&mut self, loss: Loss) {
        let left = self.disk().lose(loss);
        self.put(left);
    }

    /// Every process of the disk is gone without a word, as by SIGKILL: what they wrote is there, synced or not.
    pub fn leave_users_behind(&mut self) {
        let kept = self.disk().clone();
        // The power of the disk that they still use.
        self.disk().lose(Loss::All);
        self.put(kept);
    }

    /// Another disk takes the place of this one.
    pub fn put(&mut self, disk: Disk) {
        self.detach();
        self.disk = Arc::new(Mutex::new(disk));
        self.session = Some(attach(self.path(), &self.disk).expect("it could be mounted before"));
    }

    /// The kernel forgets what it has of all files, so that reads reach the disk. What programs have is theirs.
    pub fn forget_cache(&self) {
        let Some(session) = &self.session else { return };
        let files = self.disk().durable_files();
        for ino in files {
            // The kernel knows only the files that were used.
            let _ = session.notifier().inval_inode(INodeNo(ino), 0, 0);
        }
    }

    fn detach(&mut self) {
        // Fails if something else unmounted it.
        let _ = umount2(self.path(), MntFlags::MNT_DETACH);
        drop(self.session.take());
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        self.detach();
    }
}

fn own_namespace() -> Result<(), Errno> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)
}

fn attach(at: &Path, disk: &Arc<Mutex<Disk>>) -> io::Result<BackgroundSession> {
    fuser::spawn_mount(Adapter(disk.clone()), at, &Config::default())
}
