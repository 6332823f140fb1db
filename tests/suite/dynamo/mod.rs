//! Tables in DynamoDB: their cost, their failures, and start-ups that are rejected.

mod cost;
mod document;
mod faults;
mod fixture;
mod keys;
mod prices;
mod running;
mod starts;

use fixture::DynamoFixture;
