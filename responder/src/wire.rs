//! Bytes in, bytes out: one file per format.
