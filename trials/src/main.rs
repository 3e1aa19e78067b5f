//! `trials`: see [`trials::chaos::command`].

fn main() -> std::process::ExitCode {
    trials::chaos::run()
}
