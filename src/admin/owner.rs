//! Whose store it is: files that another user makes in it are files that its server cannot open.

use std::path::Path;

use super::command::AdminError;
use crate::owner::OtherOwner;

/// The file whose owner is that of the store.
const FILE: &str = "router.db";

/// Refuses a store of another user. If the owner cannot be read, opening the store reports the reason.
pub fn check(dir: &Path) -> Result<(), AdminError> {
    match OtherOwner::of(&dir.join(FILE)) {
        Ok(Some(OtherOwner { owner, own })) => {
            Err(AdminError::NotOurs { dir: dir.to_owned(), owner, own })
        }
        Ok(None) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::chown;

    use super::*;

    #[test]
    fn the_store_of_another_user_is_refused_with_both() {
        let told = AdminError::NotOurs { dir: "/srv/data".into(), owner: 7, own: 0 }.to_string();
        assert_eq!(
            told,
            "the store in /srv/data belongs to uid 7, and this runs as uid 0: run it as that user \
             (sudo -u '#7' kalends ...)"
        );
    }

    #[test]
    fn it_is_the_routers_file_that_says_whose_a_store_is() {
        let home = tempfile::tempdir().unwrap();
        check(home.path()).unwrap();
        let file = home.path().join(FILE);
        fs::write(&file, "").unwrap();
        check(home.path()).unwrap();
        // Only root can give a file away.
        let stranger = 65_534;
        let is_given_away = chown(&file, Some(stranger), None).is_ok();
        assert_eq!(check(home.path()).is_err(), is_given_away);
    }
}
