//! The runner behind `./lab`.

fn main() -> std::process::ExitCode {
    lab_stack::main()
}
