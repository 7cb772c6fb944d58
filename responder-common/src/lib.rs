//! What the XDP program and the user-space side must agree on: map names, global names, verdicts.
#![no_std]
