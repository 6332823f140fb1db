//! How root runs a command as the user that a file belongs to.

use std::fs;

/// The words before the command. A user without a name is named by its number.
pub fn as_user(uid: u32) -> String {
    with_users(uid, &fs::read_to_string("/etc/passwd").unwrap_or_default())
}

fn with_users(uid: u32, passwd: &str) -> String {
    let uid = uid.to_string();
    let named = passwd.lines().find(|line| line.split(':').nth(2) == Some(&uid));
    match named.and_then(|line| line.split(':').next()) {
        Some(name) => format!("runuser -u {name} --"),
        None => format!("setpriv --reuid={uid} --clear-groups"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_named_if_it_has_a_name() {
        let passwd =
            "root:x:0:0:root:/:/bin/sh\nkalends:x:997:997::/var/lib/kalends:/sbin/nologin\n";
        assert_eq!(with_users(997, passwd), "runuser -u kalends --");
        for nameless in [99, 9_970] {
            let expected = format!("setpriv --reuid={nameless} --clear-groups");
            assert_eq!(with_users(nameless, passwd), expected);
        }
    }
}
