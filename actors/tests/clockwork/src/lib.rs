//! `#[clockwork::test]`: as `#[tokio::test]`, on the runtime of the actors' tests.

use proc_macro::{Delimiter, Group, TokenStream, TokenTree};

/// Makes a test of an async function. `crate::clockwork::run` runs it, or the function of that module that is the
/// argument.
#[proc_macro_attribute]
pub fn test(argument: TokenStream, function: TokenStream) -> TokenStream {
    let run = if argument.is_empty() { tokens("run") } else { argument };
    let mut function: Vec<TokenTree> = function.into_iter().collect();
    let body = function.pop().expect("a function has a body");
    let is_async =
        |token: &TokenTree| matches!(token, TokenTree::Ident(name) if name.to_string() == "async");
    let head = function.into_iter().filter(|token| !is_async(token));
    let body =
        Group::new(Delimiter::Parenthesis, [tokens("async"), body.into()].into_iter().collect());
    let call = [tokens("crate::clockwork::"), run, TokenTree::from(body).into()];
    let call = Group::new(Delimiter::Brace, call.into_iter().collect());
    [tokens("#[::core::prelude::v1::test]"), head.collect(), TokenTree::from(call).into()]
        .into_iter()
        .collect()
}

fn tokens(text: &str) -> TokenStream {
    text.parse().expect("it is Rust")
}
