//! The text behind the options in the help of each command.

pub const BACKUP: &str = "\
Works while the server runs, and when it is stopped. All files of the store are copied as they were at one moment, then
archived with keys.toml and clock. Run it as the user of the server. The archive contains the keys, so its reader
can forge endpoints. The data directory needs free space for a second copy of the store until the command ends.
The exit code is 1 on failure, and FILE is then as it was.

Examples:
  kalends backup /backup/kalends.tar --data-dir /var/lib/kalends
  kalends backup /backup/kalends.tar.age --encrypt-to age1... --data-dir /var/lib/kalends
  kalends restore --check /backup/kalends.tar";

pub const RESTORE: &str = "\
Verifies everything first: sizes and SHA-256 of all files, the keys, and each database. The data directory must be empty
or missing, and is complete or unchanged afterwards. The exit code is 1 if the archive is refused; standard
error has the reason. docs/operations.md describes what agents and senders see after a restore.

Examples:
  kalends restore /backup/kalends.tar --data-dir /var/lib/kalends
  kalends restore /backup/kalends.tar.age --identity key.txt --data-dir /var/lib/kalends";
