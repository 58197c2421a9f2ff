use time::macros::datetime;

use super::*;

const NOW: OffsetDateTime = datetime!(2026-12-01 12:00 UTC);

fn digest() -> Digest {
    Digest::new("ab".repeat(32)).unwrap()
}

fn image() -> Image {
    Image {
        container_disk: format!("ttlab.local/debian-12@sha256:{}", digest()),
        digest: digest(),
        data_volume: None,
    }
}

fn usable() -> Golden {
    Golden::Found(disk::Claim { image: Some(digest()), filled: true, many_nodes: true, being_deleted: false })
}

fn world() -> World {
    World {
        started_at: Some(NOW - Duration::from_secs(1)),
        is_announced: false,
        recipe: Recipe::Ready { asked: DiskKind::Golden, image: image() },
        golden: Some(usable()),
        secret: None,
        vm: None,
        token_key: "0badcafe".to_owned(),
    }
}

fn secret() -> Secret {
    Secret {
        uid: "secret-1".to_owned(),
        is_ours: true,
        is_terminating: false,
        token_key: Some("0badcafe".to_owned()),
        owner: None,
    }
}

fn vm() -> Vm {
    Vm {
        uid: "vm-1".to_owned(),
        is_ours: true,
        is_terminating: false,
        token_key: Some("0badcafe".to_owned()),
        disk: Some(Choice { kind: DiskKind::Golden, reason: DiskReason::Asked }),
    }
}

fn create_golden(token_key: &str) -> Effect {
    Effect::CreateVm {
        disk: RootDisk::Golden { claim: format!("golden-{}", "ab".repeat(8)) },
        reason: DiskReason::Asked,
        image: digest(),
        token_key: token_key.to_owned(),
    }
}

fn cause(decision: &Decision) -> Option<&'static str> {
    match decision.effects.as_slice() {
        [Effect::Publish(Fact::Failed { cause, .. })] if decision.then == Then::Done => Some(cause),
        _ => None,
    }
}

#[test]
fn nothing_there_secret_first_then_vm_then_a_look() {
    let fresh = World { started_at: None, ..world() };
    assert_eq!(
        decide(&fresh, NOW),
        act(
            vec![Effect::Publish(Fact::Started), Effect::CreateSecret, create_golden("0badcafe")],
            Then::Look
        )
    );
    let announced = World { is_announced: true, ..fresh };
    assert_eq!(decide(&announced, NOW).effects.first(), Some(&Effect::CreateSecret));
}

#[test]
fn a_secret_that_is_there_lends_its_key_to_the_vm() {
    let old = Secret { token_key: Some("deadbeef".to_owned()), ..secret() };
    let decision = decide(&World { secret: Some(old), ..world() }, NOW);
    assert_eq!(decision, act(vec![create_golden("deadbeef")], Then::Look));
}

#[test]
fn both_there_the_owner_is_set_and_what_exists_is_reported() {
    let disk = Some(Choice { kind: DiskKind::Container, reason: DiskReason::GoldenImporting });
    let seen = World { secret: Some(secret()), vm: Some(Vm { disk, ..vm() }), ..world() };
    let report = Effect::Publish(Fact::Provisioned { disk });
    let own = Effect::SetOwner { vm_uid: "vm-1".to_owned(), secret_uid: "secret-1".to_owned() };
    assert_eq!(decide(&seen, NOW), act(vec![own, report.clone()], Then::Done));

    let owned = World { secret: Some(Secret { owner: Some("vm-1".to_owned()), ..secret() }), ..seen.clone() };
    assert_eq!(decide(&owned, NOW), act(vec![report.clone()], Then::Done));
    // What exists is reported even by a replica that does not have the lab any more.
    let without_lab = World { recipe: Recipe::LabMissing, golden: None, ..owned };
    assert_eq!(decide(&without_lab, NOW), act(vec![report], Then::Done));
}

#[test]
fn another_ones_object_of_our_name_is_never_taken() {
    let theirs_secret = Some(Secret { is_ours: false, ..secret() });
    let theirs_vm = Some(Vm { is_ours: false, ..vm() });
    for seen in [
        World { secret: theirs_secret.clone(), ..world() },
        World { secret: theirs_secret, vm: Some(vm()), ..world() },
        World { secret: Some(secret()), vm: theirs_vm.clone(), ..world() },
        World { vm: theirs_vm, ..world() },
    ] {
        assert_eq!(cause(&decide(&seen, NOW)), Some("name_taken"), "{seen:?}");
    }
}

#[test]
fn what_is_on_its_way_out_is_waited_for() {
    let leaving = Secret { is_terminating: true, ..secret() };
    let orphan = Secret { owner: Some("vm-0".to_owned()), ..secret() };
    for seen in [
        World { vm: Some(Vm { is_terminating: true, ..vm() }), ..world() },
        World { secret: Some(leaving.clone()), ..world() },
        World { secret: Some(leaving), vm: Some(vm()), ..world() },
        World { secret: Some(orphan.clone()), ..world() },
        World { secret: Some(orphan), vm: Some(vm()), ..world() },
    ] {
        assert_eq!(decide(&seen, NOW), wait(LEAVING_PAUSE), "{seen:?}");
    }
}

#[test]
fn a_secret_that_vanished_is_made_again_with_the_same_key_or_not_at_all() {
    let seen = World { vm: Some(vm()), ..world() };
    assert_eq!(decide(&seen, NOW), act(vec![Effect::CreateSecret], Then::Look));
    let other_key = World { token_key: "deadbeef".to_owned(), ..seen };
    assert_eq!(cause(&decide(&other_key, NOW)), Some("token_key_changed"));
}

#[test]
fn a_golden_disk_that_vanished_after_the_look_is_reported_at_once() {
    let claim =
        |being_deleted| disk::Claim { image: Some(digest()), filled: true, many_nodes: true, being_deleted };
    let table = [
        (Some(Golden::Missing), true),
        (Some(Golden::Found(claim(true))), true),
        (Some(Golden::Found(claim(false))), false),
        (Some(Golden::Forbidden), false),
        (None, false),
    ];
    for (golden, vanished) in table {
        let seen = World { golden, secret: Some(secret()), vm: Some(vm()), ..world() };
        assert_eq!(cause(&decide(&seen, NOW)) == Some("golden_vanished"), vanished, "{seen:?}");
    }
    // A machine on a container disk does not care.
    let disk = Some(Choice { kind: DiskKind::Container, reason: DiskReason::GoldenMissing });
    let container = World {
        golden: Some(Golden::Missing),
        secret: Some(secret()),
        vm: Some(Vm { disk, ..vm() }),
        ..world()
    };
    assert_eq!(decide(&container, NOW).then, Then::Done);
    assert_eq!(cause(&decide(&container, NOW)), None);
}

#[test]
fn a_flawed_golden_disk_means_the_container_disk_and_its_reason() {
    let seen = World { golden: Some(Golden::Forbidden), ..world() };
    let expected = Effect::CreateVm {
        disk: RootDisk::Container { image: image().container_disk },
        reason: DiskReason::GoldenForbidden,
        image: digest(),
        token_key: "0badcafe".to_owned(),
    };
    assert_eq!(decide(&seen, NOW), act(vec![Effect::CreateSecret, expected], Then::Look));
}

#[test]
fn a_data_volume_comes_from_the_image_table_or_not_at_all() {
    let asks = |data_volume| World {
        recipe: Recipe::Ready { asked: DiskKind::DataVolume, image: Image { data_volume, ..image() } },
        golden: None,
        ..world()
    };
    let source = lab_catalog::DataVolume { size: "2Gi".to_owned(), url: "docker://x".to_owned() };
    let decision = decide(&asks(Some(source)), NOW);
    let Effect::CreateVm { disk, .. } = &decision.effects[1] else { panic!("{decision:?}") };
    assert_eq!(*disk, RootDisk::DataVolume { url: "docker://x".to_owned(), size: "2Gi".to_owned() });
    assert_eq!(cause(&decide(&asks(None), NOW)), Some("image_has_no_data_volume"));
}

#[test]
fn a_lab_that_we_lack_is_given_a_minute_for_another_replica() {
    let lacking = |age: u64| World {
        recipe: Recipe::LabMissing,
        started_at: Some(NOW - Duration::from_secs(age)),
        ..world()
    };
    assert_eq!(decide(&lacking(59), NOW), wait(LAB_PAUSE));
    assert_eq!(cause(&decide(&lacking(60), NOW)), Some("lab_changed"));
    let unstarted = World { started_at: None, ..lacking(0) };
    assert_eq!(decide(&unstarted, NOW), act(vec![Effect::Publish(Fact::Started)], Then::Wait(LAB_PAUSE)));
}

#[test]
fn what_can_never_be_made_is_said_once_work_was_announced() {
    let recipe = Recipe::Impossible { cause: "unknown_image", message: "no such image".to_owned() };
    let decision = decide(&World { started_at: None, recipe, ..world() }, NOW);
    assert_eq!(decision.effects[0], Effect::Publish(Fact::Started));
    assert!(matches!(decision.effects[1], Effect::Publish(Fact::Failed { cause: "unknown_image", .. })));
    assert_eq!(decision.then, Then::Done);
}

/// Over every combination: nothing is created over another's object, MachineProvisioned needs VM and Secret of ours, and
/// a Secret is never created after its VM in one go.
#[test]
fn the_rules_hold_in_every_combination() {
    let secrets = || {
        let bits = (0..16u8).map(|b| {
            Some(Secret {
                is_ours: b & 1 != 0,
                is_terminating: b & 2 != 0,
                owner: (b & 4 != 0).then(|| if b & 8 != 0 { "vm-1" } else { "vm-0" }.to_owned()),
                ..secret()
            })
        });
        bits.chain([None])
    };
    let vms = || {
        let bits = (0..4u8).map(|b| Some(Vm { is_ours: b & 1 != 0, is_terminating: b & 2 != 0, ..vm() }));
        bits.chain([None])
    };
    for secret in secrets() {
        for vm in vms() {
            for golden in [None, Some(Golden::Missing), Some(Golden::Forbidden), Some(usable())] {
                for recipe in [world().recipe, Recipe::LabMissing] {
                    let (secret, vm) = (secret.clone(), vm.clone());
                    let seen = World { secret, vm, golden: golden.clone(), recipe, ..world() };
                    check(&seen, &decide(&seen, NOW));
                }
            }
        }
    }
}

fn check(seen: &World, decision: &Decision) {
    let effects = &decision.effects;
    let creates_secret = effects.iter().position(|e| *e == Effect::CreateSecret);
    let creates_vm = effects.iter().position(|e| matches!(e, Effect::CreateVm { .. }));
    let reports = effects.iter().any(|e| matches!(e, Effect::Publish(Fact::Provisioned { .. })));
    if creates_secret.is_some() {
        assert_eq!(seen.secret, None, "{seen:?}");
    }
    if creates_vm.is_some() {
        assert_eq!(seen.vm, None, "{seen:?}");
        assert!(seen.secret.is_some() || creates_secret < creates_vm, "{seen:?}");
    }
    if reports {
        let (secret, vm) = (seen.secret.as_ref().unwrap(), seen.vm.as_ref().unwrap());
        assert!(secret.is_ours && vm.is_ours && !secret.is_terminating && !vm.is_terminating);
        assert_eq!(creates_secret.or(creates_vm), None);
    }
    if creates_secret.is_some() || creates_vm.is_some() {
        assert_eq!(decision.then, Then::Look);
    }
}
