// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Cells and the root exchange data through shared memory with one writer each, and notify each
//! other with doorbells.

use std::time::Duration;

use rampart_cells::describe::{Sources, describe};
use rampart_cells::device::Device;
use rampart_cells::resolve::InUse;
use rampart_hypervisor_core::configuration::build::Blob;
use rampart_hypervisor_core::format::{InterruptFlags, InterruptGrant, MemoryFlags};

use crate::support::{
    BELLS, DEVICE, DONE, Done, EVENT, EXCEPTIONS, INTERRUPTS, MESSAGE, ORDER_FIRST, ORDER_SECOND,
    ORDER_THIRD, OTHER_PAGE, Physical, Plan, RESULT, SECOND, THIRD, TIMEOUT, all_exits, doorbell,
    region, report, wait_until,
};

const RINGS: u64 = 100;

/// A cell that reads the other's page, has a bell, and rings the other and the root.
fn blob(plan: &Plan, other: &Plan, own: usize) -> Blob {
    let mut blob = plan.blob(BELLS[own].into());
    let shared = MemoryFlags::READ | MemoryFlags::SHARED | MemoryFlags::ROOT_READ;
    blob.memory
        .push(region(other.shared(), OTHER_PAGE, 4096, shared));
    blob.interrupts = vec![InterruptGrant {
        number: BELLS[own],
        flags: InterruptFlags::DOORBELL.bits(),
    }];
    blob.doorbells = vec![doorbell(BELLS[1 - own]), doorbell(EVENT)];
    blob
}

/// The observed state of one side.
struct Side {
    plan: Plan,
    orders: Physical,
    page: Physical,
}

impl Side {
    fn of(plan: Plan) -> Self {
        Self {
            orders: plan.order_page(),
            page: plan.page(),
            plan,
        }
    }
}

/// `from` rings `to`, which handles the interrupt without an exit and reads the written data.
fn ring(device: &Device, from: &Side, to: &Side) {
    let before = (to.page.word(DEVICE), all_exits(device, to.plan.cpu()));
    let ticks = to.page.word(INTERRUPTS);
    from.orders.set(ORDER_FIRST, 1);
    let rung = wait_until(3 * TIMEOUT, || to.page.word(DEVICE) >= before.0 + RINGS);
    from.orders.set(ORDER_FIRST, 0);
    let alive = wait_until(TIMEOUT, || to.page.word(INTERRUPTS) > ticks + 10);
    let exits = all_exits(device, to.plan.cpu()) - before.1;
    println!(
        "figure {} rung by {}: interrupts {} exits {exits}",
        to.plan.name,
        from.plan.name,
        to.page.word(DEVICE) - before.0
    );
    report(
        rung && alive && exits == 0,
        &format!(
            "bells: {} is rung by {} without an exit",
            to.plan.name, from.plan.name
        ),
    );
}

/// Interrupts that Linux has requested are neither proposed as doorbells nor granted.
fn interrupts_of_linux(device: &Device) -> Done {
    let machine = describe(&Sources::of_this_machine()?);
    let free = InUse::read(device)?.free_interrupts(&machine);
    let requested = &machine.requested_interrupts;
    let proposed = requested.iter().any(|number| free.contains(number));
    report(
        !requested.is_empty() && !free.is_empty() && !proposed,
        &format!("bells: interrupts of Linux are not proposed: {requested:?}"),
    );
    let mut blob = SECOND.blob(0);
    for &number in requested {
        let flags = InterruptFlags::DOORBELL.bits();
        blob.interrupts = vec![InterruptGrant { number, flags }];
        report(
            device.create(&blob.bytes()).is_err(),
            &format!("bells: interrupt {number} of Linux is refused"),
        );
    }
    Ok(())
}

/// Rings between two cells in both directions, from the root to each, and from each to the root.
pub(crate) fn bells(device: &Device, program: &[u8]) -> Done {
    interrupts_of_linux(device)?;
    let (second, third) = (Side::of(SECOND), Side::of(THIRD));
    let second_cell = SECOND.begin(device, &blob(&SECOND, &THIRD, 0), program)?;
    let third_cell = THIRD.begin(device, &blob(&THIRD, &SECOND, 1), program)?;
    ring(device, &second, &third);
    ring(device, &third, &second);
    for (index, side) in [&second, &third].into_iter().enumerate() {
        let name = side.plan.name;
        let before = (side.page.word(DEVICE), all_exits(device, side.plan.cpu()));
        let mut rung = 0;
        for round in 1..=RINGS {
            let from = side.page.word(DEVICE);
            side.orders.set(ORDER_THIRD, round);
            device.ring(index as u32)?;
            rung += u64::from(wait_until(TIMEOUT, || side.page.word(DEVICE) > from));
        }
        let exits = all_exits(device, side.plan.cpu()) - before.1;
        report(
            rung == RINGS && exits == 0,
            &format!("bells: {name} takes rings of the root: {rung} of {RINGS}, {exits} exits"),
        );
        while device.wait(Duration::ZERO)? {}
        side.orders.set(ORDER_SECOND, side.page.word(DONE) + 5);
        let reached = device.wait(TIMEOUT)?;
        let all = wait_until(TIMEOUT, || {
            side.page.word(DONE) == side.orders.word(ORDER_SECOND)
        });
        report(
            reached && all,
            &format!("bells: {name} rings the root, which wakes from poll"),
        );
        // No interrupt arrived before its data was written, and no ring was refused.
        let wrong = (side.page.word(RESULT), side.page.word(EXCEPTIONS));
        report(
            wrong == (0, 0) && side.page.word(MESSAGE) > 0,
            &format!("bells: {name} reads the written data: {wrong:?}"),
        );
    }
    let refused = device.ring(2).is_err();
    device.destroy(third_cell)?;
    // The interrupt of the destroyed cell's bell belongs to the root again and cannot be rung.
    report(
        refused && device.ring(1).is_err(),
        "bells: a missing cell is not rung",
    );
    let ticks = second.page.word(INTERRUPTS);
    second.orders.set(ORDER_FIRST, 1);
    let refused = wait_until(TIMEOUT, || second.page.word(EXCEPTIONS) > 3);
    second.orders.set(ORDER_FIRST, 0);
    let alive = wait_until(TIMEOUT, || second.page.word(INTERRUPTS) > ticks + 10);
    report(
        refused && alive,
        "bells: ringing a destroyed cell is no failure",
    );
    device.destroy(second_cell)?;
    Ok(())
}
