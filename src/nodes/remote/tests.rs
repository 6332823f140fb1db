mod bounds;
mod connections;
mod errands;
mod node;
mod outcomes;
mod rest;
mod world;
