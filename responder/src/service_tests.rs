//! The rules of a server, through its one entrance.
