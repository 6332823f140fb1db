//! What the kernel asks of a file system, answered by the model.

use std::ffi::OsStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    BsdFileFlags, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use nix::errno::Errno;

use crate::disk::{Attributes, Disk, Kind};

/// How long the kernel may keep names and attributes: all of them change through it only, and most requests would ask for
/// them. A disk that takes the place of another one is a mount of its own.
const KEPT: Duration = Duration::from_secs(24 * 60 * 60);

/// The bits of a mode that say what a file is.
const KIND_BITS: u32 = 0o170_000;
const SOCKET_BITS: u32 = 0o140_000;
const PIPE_BITS: u32 = 0o010_000;

const RENAME_NOREPLACE: u32 = 1;

pub(crate) struct Adapter(pub(crate) Arc<Mutex<Disk>>);

impl Adapter {
    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn make(&self, dir: INodeNo, name: &OsStr, kind: Kind, mode: u32) -> Result<FileAttr, Errno> {
        let mut disk = self.disk();
        let ino = disk.make(dir.0, name, kind, permissions(mode))?;
        disk.attributes(ino).map(attr)
    }

    fn change(&self, ino: u64, mode: Option<u32>, bytes: Option<u64>) -> Result<FileAttr, Errno> {
        let mut disk = self.disk();
        if let Some(mode) = mode {
            disk.set_mode(ino, permissions(mode))?;
        }
        if let Some(bytes) = bytes {
            disk.resize(ino, size(bytes))?;
        }
        disk.attributes(ino).map(attr)
    }
}

impl Filesystem for Adapter {
    fn lookup(&self, _: &Request, dir: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let disk = self.disk();
        let found = disk.lookup(dir.0, name).and_then(|ino| disk.attributes(ino));
        entry(found.map(attr), reply);
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.disk().attributes(ino.0) {
            Ok(found) => reply.attr(&KEPT, &attr(found)),
            Err(error) => reply.error(code(error)),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        bytes: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        match self.change(ino.0, mode, bytes) {
            Ok(changed) => reply.attr(&KEPT, &changed),
            Err(error) => reply.error(code(error)),
        }
    }

    fn mknod(
        &self,
        _: &Request,
        dir: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        let kind = match mode & KIND_BITS {
            SOCKET_BITS => Kind::Socket,
            PIPE_BITS => Kind::Pipe,
            _ => Kind::File,
        };
        entry(self.make(dir, name, kind, mode), reply);
    }

    fn mkdir(&self, _: &Request, dir: INodeNo, name: &OsStr, mode: u32, _: u32, reply: ReplyEntry) {
        entry(self.make(dir, name, Kind::Directory, mode), reply);
    }

    fn create(
        &self,
        _: &Request,
        dir: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        match self.make(dir, name, Kind::File, mode) {
            Ok(made) => {
                reply.created(&KEPT, &made, Generation(0), FileHandle(0), FopenFlags::empty());
            }
            Err(error) => reply.error(code(error)),
        }
    }

    fn unlink(&self, _: &Request, dir: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(self.disk().remove(dir.0, name, Kind::File), reply);
    }

    fn rmdir(&self, _: &Request, dir: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(self.disk().remove(dir.0, name, Kind::Directory), reply);
    }

    fn rename(
        &self,
        _: &Request,
        dir: INodeNo,
        name: &OsStr,
        new_dir: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        if flags.bits() & !RENAME_NOREPLACE != 0 {
            return reply.error(fuser::Errno::EINVAL);
        }
        let keep = flags.bits() == RENAME_NOREPLACE;
        empty(self.disk().rename((dir.0, name), (new_dir.0, new_name), keep), reply);
    }

    fn open(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        opened(self.disk().open(ino.0), reply);
    }

    fn opendir(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        opened(self.disk().open(ino.0), reply);
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        bytes: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.disk().read(ino.0, size(offset), size(bytes.into())) {
            Ok(data) => reply.data(&data),
            Err(error) => reply.error(code(error)),
        }
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.disk().write(ino.0, size(offset), data) {
            Ok(()) => {
                reply.written(u32::try_from(data.len()).expect("the kernel writes less at once"));
            }
            Err(error) => reply.error(code(error)),
        }
    }

    /// Nothing is to do when a file is closed, and the kernel does not ask again.
    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.error(fuser::Errno::ENOSYS);
    }

    fn fsync(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        empty(self.disk().fsync(ino.0), reply);
    }

    fn fsyncdir(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        empty(self.disk().fsync_dir(ino.0), reply);
    }

    fn readdir(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let disk = self.disk();
        for (place, (name, ino)) in
            (1..).zip(disk.list(ino.0).unwrap_or_default()).skip(size(offset))
        {
            let kind = disk.attributes(ino).map_or(FileType::RegularFile, |found| attr(found).kind);
            if reply.add(INodeNo(ino), place, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        reply.statfs(1 << 24, 1 << 23, 1 << 23, 1 << 20, 1 << 19, 4096, 255, 4096);
    }
}

fn attr(Attributes { ino, kind, mode, bytes }: Attributes) -> FileAttr {
    let kind = match kind {
        Kind::File => FileType::RegularFile,
        Kind::Directory => FileType::Directory,
        Kind::Socket => FileType::Socket,
        Kind::Pipe => FileType::NamedPipe,
    };
    let [atime, mtime, ctime, crtime] = [UNIX_EPOCH; 4];
    FileAttr {
        ino: INodeNo(ino),
        size: bytes,
        blocks: bytes.div_ceil(512),
        atime,
        mtime,
        ctime,
        crtime,
        kind,
        perm: mode,
        nlink: 1,
        uid: nix::unistd::geteuid().as_raw(),
        gid: nix::unistd::getegid().as_raw(),
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

fn entry(found: Result<FileAttr, Errno>, reply: ReplyEntry) {
    match found {
        Ok(found) => reply.entry(&KEPT, &found, Generation(0)),
        Err(error) => reply.error(code(error)),
    }
}

fn opened(done: Result<(), Errno>, reply: ReplyOpen) {
    match done {
        Ok(()) => reply.opened(FileHandle(0), FopenFlags::empty()),
        Err(error) => reply.error(code(error)),
    }
}

fn empty(done: Result<(), Errno>, reply: ReplyEmpty) {
    match done {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(code(error)),
    }
}

fn code(error: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(error as i32)
}

fn permissions(mode: u32) -> u16 {
    (mode & 0o7777) as u16
}

fn size(bytes: u64) -> usize {
    usize::try_from(bytes).expect("a 64-bit machine")
}
