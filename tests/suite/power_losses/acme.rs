//! The account and the certificate of an authority, on a disk that loses its power before each change of their files, or
//! on which each of them fails once.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use fastrand::Rng;
use power::{Disk, Errno, Fault, Loss, Mount, Op};

use super::left::Left;
use super::{keep, repeat, seed};
use crate::acme::Pebble;
use crate::harness::{AT_ONCE, Launch, Server, until};

const TEST: &str = "power_losses::acme::what_an_authority_gave_survives_its_disk";

/// From one loss after which the server starts again to the next one, and between the changes that fail. Successive seeds
/// have all.
const STRIDE: usize = 8;

const FAILURES: &str = "localhost.failures.json";
const ACCOUNT: &str = "account.json";
const CERTIFICATE: &str = "localhost.pem";

const ALL: [&str; 3] = [FAILURES, ACCOUNT, CERTIFICATE];

struct Order<'a> {
    authority: &'a Pebble,
    mount: &'a mut Mount,
    launch: Launch,
    /// With a store, and without a file of the authority's.
    start: Disk,
}

/// What a run with power did.
struct Done {
    /// The disk before each change of the authority's files, with the name that it changes, and after all.
    moments: Vec<(Disk, String)>,
    /// All contents that the files had.
    wholes: BTreeSet<Vec<u8>>,
}

#[actix_web::test]
async fn what_an_authority_gave_survives_its_disk() {
    let Some(mut mount) = Mount::or_not_run("certificates that lose power") else { return };
    println!("{}", repeat(seed(), TEST));
    let authority = Pebble::start(0).await;
    super::used_disk(&mut mount);
    let launch = Launch { data_dir: Some(mount.at("home/data")), ..Launch::default() };
    assert!(Server::launch(launch.clone()).terminate().success());
    mount.disk().sync_all();
    let start = mount.disk().clone();
    let launch = Launch { data_dir: launch.data_dir, ..authority.launch(true) };
    let mut order = Order { authority: &authority, mount: &mut mount, launch, start };
    order.loses_power().await;
    for errno in [Errno::EIO, Errno::ENOSPC] {
        let mut nth = 1 + seed() as usize % STRIDE;
        while order.fails(nth, errno).await.is_continue() {
            nth += STRIDE;
        }
        assert!(nth > 2 * STRIDE, "an order changes more than {nth} files");
    }
}

impl Order<'_> {
    async fn loses_power(&mut self) {
        let done = self.runs().await;
        for (at, (disk, changed)) in done.moments.iter().enumerate() {
            let random = Rng::with_seed(seed() ^ at as u64);
            for loss in [Loss::All, Loss::Part(random)] {
                let what = format!("{loss:?} before change {at}, of {changed}");
                let left = disk.clone().lose(loss);
                if let Err(wrong) = self.check(&left, &done, at) {
                    let text = format!("{what}: {wrong}");
                    keep(seed(), "acme", &left, &format!("{text}\n{:#?}", disk.log()));
                    panic!("{}\n{text}", repeat(seed(), TEST));
                }
                if at % STRIDE == seed() as usize % STRIDE || changed.is_empty() {
                    println!("{what}: it starts again");
                    self.starts_again(left).await;
                }
            }
        }
    }

    /// Orders a certificate, with power.
    async fn runs(&mut self) -> Done {
        self.mount.put(self.start.clone());
        self.mount.disk().record();
        let mut server = Server::launch(self.launch.clone());
        server.logged("a new certificate is used").await;
        let recorded = self.mount.disk().recorded();
        let last = self.mount.disk().clone();
        assert!(server.terminate().success());
        let next = |at: usize| recorded.get(at + 1).unwrap_or(&last);
        let changed = |(at, disk): (usize, &Disk)| {
            let change = next(at).log().get(disk.log().len())?;
            change.path.contains("/acme").then(|| (disk.clone(), change.path.clone()))
        };
        let mut moments: Vec<_> = recorded.iter().enumerate().filter_map(changed).collect();
        moments.push((last, String::new()));
        let contents = moments.iter().flat_map(|(disk, _)| ALL.map(|file| self.file(disk, file)));
        let wholes = contents.flatten().filter(|contents| !contents.is_empty()).collect();
        Done { moments, wholes }
    }

    /// Each file is whole or absent. Before an account is asked for, the order is on disk as one that failed, and before a
    /// certificate, the account. It is forgotten once the certificate is on disk.
    fn check(&self, left: &Disk, done: &Done, at: usize) -> Result<(), String> {
        Left::on(left)?;
        for file in ALL {
            match self.file(left, file) {
                Some(contents) if !done.wholes.contains(&contents) => {
                    return Err(format!("{file} is neither whole nor absent"));
                }
                _ => {}
            }
        }
        let has_begun = |file: &str| {
            let changed = |(_, path): &(_, String)| path.contains(&format!(".{file}."));
            done.moments[..=at].iter().any(changed)
        };
        // A rename has the temporary name, so that this is the removal, or the end.
        let is_removed =
            |(_, path): &(Disk, String)| path.is_empty() || path.ends_with(&format!("/{FAILURES}"));
        let is_forgotten = done.moments[..=at].iter().any(is_removed);
        for (file, must_be_there) in [
            (FAILURES, has_begun(ACCOUNT) && !is_forgotten),
            (ACCOUNT, has_begun(CERTIFICATE)),
            (CERTIFICATE, is_forgotten),
        ] {
            if must_be_there && self.file(left, file).is_none() {
                return Err(format!("{file} is lost"));
            }
        }
        Ok(())
    }

    /// What is there is used: an account is not made again, nor is a certificate ordered again.
    async fn starts_again(&mut self, left: Disk) {
        let [account, certificate] = [ACCOUNT, CERTIFICATE].map(|it| self.file(&left, it));
        let (accounts, orders) = (self.accounts(), self.authority.orders());
        self.mount.put(left);
        let mut server = Server::launch(self.launch.clone());
        self.authority.issued().await;
        let is_new = |there: Option<Vec<u8>>| usize::from(there.is_none());
        assert_eq!(self.authority.orders() - orders, is_new(certificate.clone()));
        let makes_one = account.is_none() && certificate.is_none();
        assert_eq!(self.accounts() - accounts, usize::from(makes_one));
        assert!(server.terminate().success());
    }

    async fn fails(&mut self, nth: usize, errno: Errno) -> ControlFlow<()> {
        self.mount.put(self.start.clone());
        self.mount.disk().fail(Fault::nth(nth as u64, errno).of(&Op::CHANGES).on("/acme"));
        let mut server = Server::launch(self.launch.clone());
        let [mut is_used, mut has_failed] = [false; 2];
        until(AT_ONCE, "the order ends", async || {
            let log = server.log();
            is_used = log.contains("a new certificate is used");
            has_failed = log.contains("certificate failed");
            is_used || has_failed
        })
        .await;
        if !self.mount.disk().heal() {
            assert!(is_used);
            return ControlFlow::Break(());
        }
        let log = self.mount.disk().log().to_vec();
        let failed = log.iter().find(|done| done.error.is_some()).expect("it has struck");
        println!("{errno} of {:?} of {}: is used: {is_used}", failed.op, failed.path);
        assert!(!has_failed || server.log().contains("/acme"), "{}", server.log());
        server.kill();
        let left = self.mount.disk().clone().lose(Loss::All);
        assert!(!is_used || self.file(&left, CERTIFICATE).is_some(), "{failed:?}: it was used");
        self.starts_again(left).await;
        ControlFlow::Continue(())
    }

    fn file(&self, disk: &Disk, name: &str) -> Option<Vec<u8>> {
        let path = format!("home/data/acme/{}/{name}", self.authority.folder());
        disk.contents(&path).map(<[u8]>::to_vec)
    }

    fn accounts(&self) -> usize {
        self.authority.log().matches(" accounts in memory").count()
    }
}
