//! The actors of Kalends.
