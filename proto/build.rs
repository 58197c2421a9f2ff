//! Generates the Rust types of the contract without `protoc`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files = ["lab/v1/event.proto", "lab/v1/ask.proto"];
    for file in files {
        println!("cargo::rerun-if-changed={file}");
    }
    let descriptors = protox::compile(files, ["."])?;
    prost_build::Config::new().compile_fds(descriptors)?;
    Ok(())
}
