//! Writes the head of a transcript, and reads the limits in it.

use super::input::Transcript;
use crate::script::NameKind;
use crate::script::tokens::{SPAN, SyntaxError, date_text, span, span_text};
use state_machine::connection::{Config, Limits};
use state_machine::ids::NodeId;
use state_machine::record::LastConnect;
use state_machine::time::Span;

impl Transcript {
    /// The title and the head in the form that the parser reads.
    pub fn head(&self) -> String {
        let Self { title, start, config, seed, .. } = self;
        let mut head = format!("# {title}\nat {}\n", date_text(*start));
        let limits = limits_text(&config.limits);
        if !limits.is_empty() {
            head += &format!("limits{limits}\n");
        }
        head += &format!("fresh {}\n", seed.fresh_uaid.name());
        if seed.jitter != 0 {
            head += &format!("jitter {}\n", seed.jitter);
        }
        if config.node.as_str() != DEFAULT_NODE {
            head += &format!("node {}\n", config.node);
        }
        if let Some(month) = config.frozen_month {
            head += &format!("frozen {month}\n");
        }
        if config.simplepush {
            head += "simplepush\n";
        }
        head
    }
}

/// What tests begin with: a node of Web Push with these limits.
pub fn default_config(limits: Limits) -> Config {
    Config {
        node: NodeId::new(DEFAULT_NODE),
        frozen_month: None,
        simplepush: false,
        vapid_keys: [].into(),
        limits,
    }
}

/// The limits of a transcript without a `limits` line. Tests begin with them too.
pub fn default_limits() -> Limits {
    Limits {
        hello_timeout: Span::from_secs(5),
        ack_wait: Span::from_secs(1),
        drain_wait: Span::from_secs(8),
        keepalive_interval: Span::from_secs(300),
        keepalive_grace: Span::from_secs(30),
        ping_floor: Span::from_secs(3),
        session_max: Span::from_secs(14 * 24 * 60 * 60),
        storage_recheck: Span::from_secs(1800),
        store_retry: Span::from_secs(1),
        first_fetch_rows_max: 100,
        fetch_rows_max: 100,
        fetch_bytes_max: 1 << 20,
        unacked_max: 128,
        deferred_commands_max: 256,
        remembered_acks_max: 128,
        channels_max: 2000,
        broadcasts_per_agent_max: 64,
        last_connect_shards: LastConnect::SHARDS,
    }
}

/// The node's name if the head has none.
const DEFAULT_NODE: &str = "here";

/// Reads one `NAME=VALUE` of a `limits` line.
pub(super) fn read_limit(limits: &mut Limits, word: &str) -> Result<(), SyntaxError> {
    let (name, value) =
        word.split_once('=').ok_or_else(|| format!("expected NAME=VALUE, got `{word}`"))?;
    let fields = fields(limits);
    let known: Vec<&str> = fields.iter().map(|(known, _)| *known).collect();
    let (_, field) = fields
        .into_iter()
        .find(|(known, _)| *known == name)
        .ok_or_else(|| format!("unknown limit `{name}`; known: {}", known.join(", ")))?;
    let wrong = |expected: &str| format!("expected {name}= and {expected}, got `{value}`");
    match field {
        Field::Span(field) => *field = span(value).ok_or_else(|| wrong(SPAN))?,
        Field::Number(field) => *field = value.parse().map_err(|_| wrong("a number"))?,
    }
    Ok(())
}

/// The limits that differ from the default, each after a space.
fn limits_text(limits: &Limits) -> String {
    let (mut limits, mut default) = (limits.clone(), default_limits());
    let pairs = fields(&mut limits).into_iter().zip(fields(&mut default));
    pairs
        .map(|((name, value), (_, default))| match (value.text(), default.text()) {
            (value, default) if value == default => String::new(),
            (value, _) => format!(" {name}={value}"),
        })
        .collect()
}

enum Field<'a> {
    Span(&'a mut Span),
    Number(&'a mut usize),
}

impl Field<'_> {
    fn text(&self) -> String {
        match self {
            Self::Span(span) => span_text(**span),
            Self::Number(number) => number.to_string(),
        }
    }
}

/// Every limit with its name. A new limit does not compile until it is listed here.
fn fields(limits: &mut Limits) -> Vec<(&'static str, Field<'_>)> {
    macro_rules! named {
        ($($kind:ident: $($name:ident),*;)*) => {{
            let Limits { $($($name,)*)* } = limits;
            vec![$($((stringify!($name), Field::$kind($name)),)*)*]
        }};
    }
    named! {
        Span: hello_timeout, ack_wait, drain_wait, keepalive_interval, keepalive_grace,
            ping_floor, session_max, storage_recheck, store_retry;
        Number: first_fetch_rows_max, fetch_rows_max, fetch_bytes_max, unacked_max, deferred_commands_max,
            remembered_acks_max, channels_max, broadcasts_per_agent_max, last_connect_shards;
    }
}
