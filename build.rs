//! Compiles the wire contract. Needs no `protoc`: protox is a compiler in Rust.

use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    let descriptors = protox::Compiler::new(["proto"])?
        // Comments become the documentation of the generated types and of reflection.
        .include_source_info(true)
        .include_imports(true)
        .open_file("detectd/v1/detection.proto")?
        .file_descriptor_set();
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(
        out.join("detection.binpb"),
        prost::Message::encode_to_vec(&descriptors),
    )?;
    tonic_prost_build::configure()
        // Pictures are read where the message was received, without another copy.
        .bytes(".detectd.v1.Image.encoded")
        .bytes(".detectd.v1.RawImage.data")
        .extern_path(".google.rpc", "::tonic_types::pb")
        .compile_fds(descriptors)?;
    Ok(())
}
