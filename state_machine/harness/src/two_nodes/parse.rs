//! Parses an agent script line by line.

use std::collections::BTreeSet;

use super::input::{Execution, Input, NodeInput, NodeName, TwoNodesScript};
use crate::script::tokens::{OFFSET, SyntaxError, Tokens, offset, wait};
use crate::script::{self, Grammar, ParseError};
use crate::transcript::{Head, Reader, check_effect};
use state_machine::connection::Event;
use state_machine::{Chid, Month, OpId, RouterRecord, Time, Uaid};

impl TwoNodesScript {
    /// Reads a script. Its errors begin with the line: put the file's name and a colon before them.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let mut begin = Begin::default();
        let (title, steps) = script::parse(text, &mut begin)?;
        let Begin { head: Head { start, config, seed }, clocks, record, channels } = begin;
        let start = start.expect("no input is read without it");
        let clocks = clocks.map(|clock| clock.unwrap_or(start));
        Ok(Self { title, start, config, seed, clocks, record, channels, steps })
    }
}

/// The head: that of a session, the clocks, and what the store has at the start.
#[derive(Default)]
struct Begin {
    head: Head,
    clocks: [Option<Time>; 2],
    record: Option<RouterRecord>,
    channels: Vec<(Uaid, Month, BTreeSet<Chid>)>,
}

impl Grammar for Begin {
    type Input = Input;

    const WHAT: &'static str = "script";

    fn effect(&self, recipient: &str, rest: &str) -> Result<(), SyntaxError> {
        match recipient.split_once('.') {
            Some((node, recipient)) if NodeName::read(node).is_some() => {
                check_effect(recipient, rest)
            }
            None if matches!(recipient, "table" | "node") => Ok(()),
            _ => Err(format!("expected table<, node<, here.agent< or such, got `{recipient}<`")),
        }
    }

    fn input(&mut self, head: &str, rest: &str) -> Result<Option<Input>, SyntaxError> {
        let of_node = head.strip_suffix('>').and_then(|head| {
            let (node, whose) = head.split_once('.')?;
            Some((NodeName::read(node)?, whose))
        });
        Ok(Some(match (of_node, head) {
            (Some((node, whose)), _) => {
                Input::At(node, node_input(&self.head.reader()?, whose, rest)?)
            }
            (None, "endpoint>") => stores(&self.head.reader()?, rest)?,
            (None, "wait") => {
                self.head.reader()?;
                Input::Wait(wait(rest)?)
            }
            _ => return Ok(None),
        }))
    }

    fn head(&mut self, head: &str, rest: &str, has_no_input: bool) -> Result<(), SyntaxError> {
        let mut words = Tokens::of(rest);
        match head {
            "at" | "limits" | "fresh" | "frozen" if has_no_input => {
                return self.head.head(head, rest, has_no_input);
            }
            "clock" if has_no_input => self.clock(&mut words)?,
            "record" if has_no_input => {
                let (record, _) = self.head.reader()?.record(&mut words)?;
                let node = rest.contains("node=");
                self.record = Some(RouterRecord { node: record.node.filter(|_| node), ..record });
            }
            "channels" if has_no_input => {
                let (uaid, month) = (words.name()?, words.parse("a month such as 2026_11")?);
                self.channels.push((uaid, month, words.list(Tokens::name)?.into_iter().collect()));
            }
            _ => {
                return Err(format!(
                    "expected here.agent>, here.store>, there.node>, endpoint>, wait or such, an effect with <, \
                     or at the beginning at, limits, fresh, frozen, clock, record or channels, got `{head}`"
                ));
            }
        }
        words.end()
    }
}

impl Begin {
    fn clock(&mut self, words: &mut Tokens<'_>) -> Result<(), SyntaxError> {
        let start = self.head.reader()?.start;
        let name = words.word("here or there")?;
        let node =
            NodeName::read(name).ok_or_else(|| format!("expected here or there, got `{name}`"))?;
        let at = words.word(OFFSET)?;
        let clock = offset(at, start).ok_or_else(|| format!("expected {OFFSET}, got `{at}`"))?;
        self.clocks[node as usize] = Some(clock);
        Ok(())
    }
}

fn node_input(reader: &Reader<'_>, whose: &str, rest: &str) -> Result<NodeInput, SyntaxError> {
    use crate::transcript::Input::Event as Happens;
    Ok(match (whose, rest) {
        ("agent", "<connects>") => NodeInput::Connects,
        ("agent", _) => NodeInput::Session(Reader::agent(rest)?),
        ("push", _) => NodeInput::Session(Happens(reader.push(rest)?)),
        ("node", "notified") => NodeInput::Notified(true),
        ("node", "not_notified") => NodeInput::Notified(false),
        ("node", "crashes") => NodeInput::Crashes,
        ("node", _) => match reader.node(rest)? {
            Event::ConnectedElsewhere { .. } => {
                return Err("write `notified`: the other node orders the notification".to_owned());
            }
            event => NodeInput::Session(Happens(event)),
        },
        ("store", _) => {
            let mut words = Tokens::of(rest);
            let op = OpId(words.parse("the number of the operation")?);
            let execution = match words.word("executed, failed or answer_lost")? {
                "executed" => Execution::Executed,
                "failed" => Execution::Failed,
                "answer_lost" => Execution::AnswerLost,
                other => {
                    return Err(format!("expected executed, failed or answer_lost, got `{other}`"));
                }
            };
            words.end()?;
            NodeInput::Store(op, execution)
        }
        _ => {
            return Err(format!(
                "expected agent>, push>, node> or store> of the node, got `{whose}>`"
            ));
        }
    })
}

fn stores(reader: &Reader<'_>, rest: &str) -> Result<Input, SyntaxError> {
    let mut words = Tokens::of(rest);
    words.exactly("stores")?;
    let uaid = words.name()?;
    let message = reader.message(&mut words)?;
    words.end()?;
    Ok(Input::Stores(uaid, Box::new(message)))
}
