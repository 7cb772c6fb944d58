//! Zone files to ready answers.
