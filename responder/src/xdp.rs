//! The bypass path: frames between NIC queues and workers, around the kernel's network stack.

pub mod steering;
