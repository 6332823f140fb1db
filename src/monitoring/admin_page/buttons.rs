//! Forms that change something, and the question before each. Every value is escaped.

use crate::push::web::escaped;

/// A change that an operator can ask for: where its form is sent, and what the question says.
pub(super) struct Action<'a> {
    pub(super) path: &'static str,
    /// The fields that name its object.
    pub(super) fields: &'a [(&'static str, &'a str)],
    /// A button, and the beginning of the question.
    pub(super) name: &'a str,
    pub(super) effect: &'static str,
    /// Where the answer no leads, and its text.
    pub(super) no: (&'static str, &'static str),
}

pub(super) const BACK_UP: Action<'_> = Action {
    path: "/admin/backup",
    fields: &[],
    name: "Back up now",
    effect: "The server writes an archive of the store and its keys to backup_dir, in place of that of today.",
    no: ("/admin", "Not now"),
};

pub(super) const DOCTOR: Action<'_> = Action {
    path: "/admin/doctor",
    fields: &[],
    name: "Run the doctor",
    effect: "The server uses its public URL as a user agent and as an application server do: it connects, subscribes and \
             pushes. That takes some seconds, a minute at most. The record of one new user agent stays until inactive \
             ones are dropped.",
    no: ("/admin", "Not now"),
};

pub(super) const STOP: Action<'_> = Action {
    path: "/admin/stop",
    fields: &[],
    name: "Drain and stop",
    effect: "The server closes the connections of its user agents, over drain_s on a connection node, and ends. \
             Messages wait in the store. A service manager may start it again.",
    no: ("/admin", "Keep it running"),
};

pub(super) fn revoking<'a>(fields: &'a [(&'static str, &'a str)], name: &'a str) -> Action<'a> {
    Action {
        path: "/admin/people",
        fields,
        name,
        effect: "All user agents of this token are closed now, and their endpoints answer 410. A revoked token is \
                 never valid again.",
        no: ("/admin/people", "Keep it"),
    }
}

pub(super) fn dropping<'a>(fields: &'a [(&'static str, &'a str)], name: &'a str) -> Action<'a> {
    Action {
        path: "/admin/drop",
        fields,
        name,
        effect: "Its connection, its channels and its messages end, and its endpoints answer 410. It gets a new uaid \
                 when it connects again, and must subscribe anew.",
        no: ("/admin", "Keep it"),
    }
}

/// The token that a form of a session has.
pub(super) fn token(form: &str) -> String {
    hidden("form", form)
}

fn hidden(name: &str, value: &str) -> String {
    format!("<input type=\"hidden\" name=\"{}\" value=\"{}\">", escaped(name), escaped(value))
}

impl Action<'_> {
    /// A button that leads to the question.
    pub(super) fn button(&self, form: &str, text: &str) -> String {
        let (fields, path) = (self.hidden(form), self.path);
        // A text that is the same in each row of a table.
        let label = match self.name.starts_with(text) && self.name != text {
            true => format!(" aria-label=\"{}\"", escaped(self.name)),
            false => String::new(),
        };
        let text = escaped(text);
        format!(
            "<form method=\"post\" action=\"{path}\">{fields}<button{label}>{text}</button></form>"
        )
    }

    /// The question. Its form is confirmed.
    pub(super) fn question(&self, form: &str) -> String {
        let (path, name, effect) = (self.path, escaped(self.name), self.effect);
        let (fields, confirmed) = (self.hidden(form), hidden("confirmed", "yes"));
        let (back, no) = self.no;
        format!(
            "<h2>{name}?</h2><p>{effect}</p><form method=\"post\" action=\"{path}\" class=\"row\">{fields}{confirmed}\
             <button class=\"danger\">{name}</button> <a href=\"{back}\">{no}</a></form>"
        )
    }

    fn hidden(&self, form: &str) -> String {
        let fields = self.fields.iter().map(|(name, value)| hidden(name, value));
        token(form) + &fields.collect::<String>()
    }
}
