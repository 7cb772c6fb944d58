//! The project's commands.
fn main() -> anyhow::Result<()> {
    xtask::ebpf::run(std::env::args().any(|a| a == "--check"))
}
