//! The value of `backup_recipient`.

/// To whom age encrypts an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgeRecipient(String);

impl AgeRecipient {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(super) fn read(text: &str) -> Result<Self, String> {
        let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        match text.starts_with("age1") && text.len() <= 4096 && text.chars().all(is_part) {
            true => Ok(Self(text.to_owned())),
            false => {
                Err("expected a recipient of age, age1..., as `age-keygen -y` prints it".into())
            }
        }
    }
}
