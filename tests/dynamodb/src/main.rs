//! A DynamoDB wire server for tests. It prints its URL as the first line and ends with its standard
//! input, so that it never outlives its parent process, even if that is killed.

use std::env;
use std::error::Error;
use std::io::{self, Write};
use std::process;
use std::thread;

use dynoxide::Database;
use dynoxide::server::serve_on;
use tokio::net::TcpListener;

const USAGE: &str = "usage: dynamodb-server [--port N] [--data FILE]";

#[derive(Default)]
struct Options {
    /// 0, the default, selects a free port.
    port: u16,
    /// The database file; without one the tables are in memory.
    data: Option<String>,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse(env::args().skip(1))?;
    let database = match options.data {
        Some(file) => Database::new(&file)?,
        None => Database::memory()?,
    };
    let listener = TcpListener::bind(("127.0.0.1", options.port)).await?;
    writeln!(io::stdout(), "http://{}", listener.local_addr()?)?;
    thread::spawn(end_with_stdin);
    serve_on(listener, database).await;
    Ok(())
}

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, Box<dyn Error>> {
        let mut options = Self::default();
        while let Some(name) = arguments.next() {
            let value = arguments.next().ok_or(USAGE)?;
            match name.as_str() {
                "--port" => options.port = value.parse().map_err(|_| USAGE)?,
                "--data" => options.data = Some(value),
                _ => return Err(USAGE.into()),
            }
        }
        Ok(options)
    }
}

/// Discards the input and waits for its end.
fn end_with_stdin() {
    // A read error ends the input as well.
    let _ended = io::copy(&mut io::stdin(), &mut io::sink());
    process::exit(0);
}
