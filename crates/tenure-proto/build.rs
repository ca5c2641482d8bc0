//! Turns `proto/` into Rust without a system `protoc`: protox parses, prost and tonic generate.

use std::{env, error::Error, fs, path::PathBuf};

use protox::prost::Message;

/// Every file, below `proto/`. One more file is one more line here; its package becomes a module of `src/lib.rs`.
const FILES: &[&str] = &[
    "etcd/auth.proto",
    "etcd/authpb.proto",
    "etcd/cluster.proto",
    "etcd/election.proto",
    "etcd/header.proto",
    "etcd/kv.proto",
    "etcd/lease.proto",
    "etcd/lock.proto",
    "etcd/maintenance.proto",
    "etcd/mvccpb.proto",
    "etcd/watch.proto",
    "grpc/health.proto",
    "tenure/log.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let out_dir = PathBuf::from(env::var("OUT_DIR")?);

    let files = protox::compile(FILES, ["proto"])?;

    // Comments and source positions are most of the set's bytes, and nothing at run time reads them.
    let mut descriptors = files.clone();
    for file in &mut descriptors.file {
        file.source_code_info = None;
    }
    fs::write(out_dir.join("descriptors.bin"), descriptors.encode_to_vec())?;

    let services = env::var_os("CARGO_FEATURE_GRPC").is_some();
    tonic_prost_build::configure()
        .build_client(services)
        .build_server(services)
        // A service need not be complete: what it leaves out answers UNIMPLEMENTED.
        .generate_default_stubs(true)
        .codec_path("crate::codec::SmallCodec")
        .bytes(".")
        .include_file("modules.rs")
        .compile_fds(files)?;
    Ok(())
}
