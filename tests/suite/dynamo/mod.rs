//! Tables in DynamoDB: what they cost, what happens when they fail, and what is refused at the start.

mod cost;
mod document;
mod faults;
mod keys;
mod prices;
mod running;
mod shop;
mod starts;

use shop::Shop;
