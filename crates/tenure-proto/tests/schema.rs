//! The field numbers are a contract with every etcd client in the world. Two guards: a golden listing of the whole schema, so that
//! no number changes unnoticed, and a few messages whose bytes were worked out by hand, so that the listing is not merely
//! consistent with itself.
//!
//! After a change that is meant: `UPDATE_GOLDEN=1 cargo test -p tenure-proto --test schema`, and read the diff.

use std::{env, fmt::Write as _, fs, path::Path};

use prost::Message as _;
use prost_types::{
    DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorSet,
    field_descriptor_proto::{Label, Type},
};
use tenure_proto::{FILE_DESCRIPTOR_SET, authpb, etcdserverpb as pb, health, mvccpb, v3electionpb};

fn type_name(field: &FieldDescriptorProto) -> String {
    match field.r#type() {
        Type::Message | Type::Enum => field.type_name().trim_start_matches('.').to_owned(),
        scalar => scalar.as_str_name().trim_start_matches("TYPE_").to_lowercase(),
    }
}

fn list_message(out: &mut String, scope: &str, message: &DescriptorProto) {
    let name = format!("{scope}.{}", message.name());
    if message.field.is_empty() {
        let _ = writeln!(out, "message {name} is empty");
    }
    for field in &message.field {
        let label = match field.label() {
            Label::Repeated => "repeated".to_owned(),
            _ => match field.oneof_index {
                Some(index) => format!("oneof {}", message.oneof_decl[index as usize].name()),
                None => "single".to_owned(),
            },
        };
        let _ =
            writeln!(out, "field {name} {} {} {} {label}", field.number(), field.name(), type_name(field));
    }
    for one in &message.enum_type {
        list_enum(out, &name, one);
    }
    for nested in &message.nested_type {
        list_message(out, &name, nested);
    }
}

fn list_enum(out: &mut String, scope: &str, one: &EnumDescriptorProto) {
    for value in &one.value {
        let _ = writeln!(out, "enum {scope}.{} {} {}", one.name(), value.number(), value.name());
    }
}

/// One line for each field, enum value and method, ordered by file and then as declared.
fn listing() -> String {
    let set = FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).expect("build.rs wrote an encoded set");
    let mut files = set.file;
    files.sort_by(|a, b| a.name().cmp(b.name()));
    let mut out = String::new();
    for file in &files {
        let package = file.package();
        for service in &file.service {
            for method in &service.method {
                let stream = |yes| if yes { "stream " } else { "" };
                let _ = writeln!(
                    out,
                    "rpc /{package}.{}/{} {}{} -> {}{}",
                    service.name(),
                    method.name(),
                    stream(method.client_streaming()),
                    method.input_type().trim_start_matches('.'),
                    stream(method.server_streaming()),
                    method.output_type().trim_start_matches('.'),
                );
            }
        }
        for one in &file.enum_type {
            list_enum(&mut out, package, one);
        }
        for message in &file.message_type {
            list_message(&mut out, package, message);
        }
    }
    out
}

#[test]
fn no_number_name_or_type_changes_unnoticed() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/schema.golden");
    let now = listing();
    if env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, &now).expect("the crate's folder can be written to");
    }
    let golden = fs::read_to_string(&path).expect("schema.golden is committed");
    let gone: Vec<_> = golden.lines().filter(|line| !now.lines().any(|other| other == *line)).collect();
    let new: Vec<_> = now.lines().filter(|line| !golden.lines().any(|other| other == *line)).collect();
    assert!(gone.is_empty() && new.is_empty(), "the schema changed\n-{gone:#?}\n+{new:#?}");
    assert_eq!(golden, now, "the order of the declarations changed");
}

/// (message, number, name, type) of etcd's odd ones: numbers far from the rest, capitals, gaps, later additions.
const TRICKY: &[&str] = &[
    "field etcdserverpb.Compare 64 range_end bytes single",
    "field etcdserverpb.Compare 8 lease int64 oneof target_union",
    "enum etcdserverpb.Compare.CompareResult 3 NOT_EQUAL",
    "enum etcdserverpb.Compare.CompareTarget 4 LEASE",
    "field etcdserverpb.WatchResponse 7 fragment bool single",
    "field etcdserverpb.WatchResponse 11 events mvccpb.Event repeated",
    "field etcdserverpb.RequestOp 4 request_txn etcdserverpb.TxnRequest oneof request",
    "field etcdserverpb.LeaseGrantRequest 1 TTL int64 single",
    "field etcdserverpb.LeaseGrantRequest 2 ID int64 single",
    "field etcdserverpb.LeaseGrantResponse 2 ID int64 single",
    "field etcdserverpb.LeaseGrantResponse 3 TTL int64 single",
    "field etcdserverpb.LeaseCheckpoint 2 remaining_TTL int64 single",
    "field etcdserverpb.LeaseTimeToLiveResponse 4 grantedTTL int64 single",
    "field etcdserverpb.AuthUserGrantRoleRequest 1 user string single",
    "field etcdserverpb.AuthUserRevokeRoleRequest 1 name string single",
    "field etcdserverpb.AuthUserAddRequest 4 hashedPassword string single",
    "field etcdserverpb.AuthUserChangePasswordRequest 3 hashedPassword string single",
    "field etcdserverpb.StatusResponse 13 downgradeInfo etcdserverpb.DowngradeInfo single",
    "field etcdserverpb.HashKVResponse 4 hash_revision int64 single",
    "field mvccpb.KeyValue 5 value bytes single",
    "field mvccpb.KeyValue 6 lease int64 single",
    "field authpb.Permission 1 permType authpb.Permission.Type single",
    "rpc /etcdserverpb.KV/RangeStream etcdserverpb.RangeRequest -> stream etcdserverpb.RangeStreamResponse",
    "rpc /etcdserverpb.Lease/LeaseKeepAlive stream etcdserverpb.LeaseKeepAliveRequest -> stream etcdserverpb.LeaseKeepAliveResponse",
    "rpc /v3electionpb.Election/Observe v3electionpb.LeaderRequest -> stream v3electionpb.LeaderResponse",
    "rpc /grpc.health.v1.Health/Watch grpc.health.v1.HealthCheckRequest -> stream grpc.health.v1.HealthCheckResponse",
];

#[test]
fn the_tricky_ones_are_as_etcd_has_them() {
    let now = listing();
    for line in TRICKY {
        assert!(now.lines().any(|other| other == *line), "missing: {line}");
    }
}

#[test]
fn bytes_worked_out_by_hand() {
    let compare = pb::Compare {
        result: pb::compare::CompareResult::NotEqual as i32,
        target: pb::compare::CompareTarget::Lease as i32,
        key: "k".into(),
        target_union: Some(pb::compare::TargetUnion::Lease(1)),
        range_end: "l".into(),
    };
    // Tag = number << 3 | wire type; number 64 needs two bytes: 64 << 3 | 2 = 514 = 0x82 0x04.
    assert_eq!(compare.encode_to_vec(), b"\x08\x03\x10\x04\x1a\x01k\x40\x01\x82\x04\x01l");

    let watch = pb::WatchResponse {
        events: vec![mvccpb::Event { r#type: mvccpb::event::EventType::Delete as i32, ..Default::default() }],
        ..Default::default()
    };
    assert_eq!(watch.encode_to_vec(), b"\x5a\x02\x08\x01");

    let ttl = pb::LeaseTimeToLiveResponse { id: 1, ttl: -1, granted_ttl: 5, ..Default::default() };
    assert_eq!(ttl.encode_to_vec(), b"\x10\x01\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x20\x05");

    let permission = authpb::Permission {
        perm_type: authpb::permission::Type::Readwrite as i32,
        key: "a".into(),
        range_end: "b".into(),
    };
    assert_eq!(permission.encode_to_vec(), b"\x08\x02\x12\x01a\x1a\x01b");

    let leader = v3electionpb::LeaderKey { name: "n".into(), key: "k".into(), rev: 3, lease: 4 };
    assert_eq!(leader.encode_to_vec(), b"\x0a\x01n\x12\x01k\x18\x03\x20\x04");

    let serving =
        health::HealthCheckResponse { status: health::health_check_response::ServingStatus::Serving as i32 };
    assert_eq!(serving.encode_to_vec(), b"\x08\x01");
}

/// Any byte field is shared with the buffer that it came in, not copied.
#[test]
fn values_are_not_copied_when_decoded() {
    let put = pb::PutRequest { key: "k".into(), value: vec![7; 4096].into(), ..Default::default() };
    let wire = bytes::Bytes::from(put.encode_to_vec());
    let back = pb::PutRequest::decode(wire.clone()).expect("just encoded");
    assert!(wire.as_ptr_range().contains(&back.value.as_ptr()));
}
