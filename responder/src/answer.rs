//! The answer engine.
