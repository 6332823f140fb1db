//! The rules of router records on the store of the models of connections: each of them is one request that writes.

use std::cell::RefCell;

use harness::model_store::Store;
use state_machine::store::{StoreAnswer, StoreOp};
use storage::record_row::RecordRow;
use storage::registration::NewRecord;
use storage::rules::{finished, records};
use storage_reference::{Answer, Request, Rows, Tables};

/// Executes an operation; one on a record by the rule that servers run.
pub(crate) fn execute(store: &mut Store, op: &StoreOp) -> StoreAnswer {
    let uaid = match op {
        StoreOp::Register(registration) => registration.uaid,
        StoreOp::UpdateMonth(step) | StoreOp::FinishMove(step) => step.uaid,
        StoreOp::ClearNode { uaid, .. } => *uaid,
        _ => return store.execute(op),
    };
    let there = store.records.remove(&uaid).map(|record| (uaid, record.into()));
    let tables = Tables { records: there.into_iter().collect(), ..Tables::default() };
    let tables = RefCell::new(tables);
    let rows = Rows(&tables);
    let answer = match op {
        StoreOp::Register(registration) => {
            let request = Request::Register(NewRecord::from(registration));
            match tables.borrow_mut().execute(&request) {
                Some(Answer::Registered(result)) => StoreAnswer::Registered(*result),
                other => panic!("{other:?} is no answer to {request:?}"),
            }
        }
        StoreOp::UpdateMonth(step) => {
            StoreAnswer::MonthUpdated(done(finished(records::update_message_month(&rows, step))))
        }
        StoreOp::FinishMove(step) => {
            StoreAnswer::MoveFinished(done(finished(records::finish_month_move(&rows, step))))
        }
        StoreOp::ClearNode { binding, .. } => {
            StoreAnswer::NodeCleared(done(finished(records::clear_node(&rows, uaid, binding))))
        }
        _ => unreachable!("the others have no record"),
    };
    let there = tables.into_inner().records.remove(&uaid).and_then(RecordRow::served);
    store.records.extend(there.map(|record| (uaid, record)));
    answer
}

fn done(result: Result<bool, storage::StoreError>) -> bool {
    result.expect("the tables fail no request")
}
