//! Faults: when they come, what they do, and the end of all of them.

use super::*;

impl World {
    pub(super) fn fault(&mut self, fault: Fault, mean: u64) {
        let h = self.h;
        if h >= self.heal_at {
            return;
        }
        self.trace.event(h, "fault", fault as u64);
        let next = h + self.rng.wait(mean) + 10 * MS;
        self.push(next, Event::Fault(fault, mean));
        let span = fault.duration(&mut self.rng);
        let until = (h + span).min(self.heal_at);
        match fault {
            Fault::Kill => self.crash(false, until),
            Fault::CrashLoop => {
                self.crash(false, until);
                let most = if self.rng.chance(300) { 40 } else { 9 };
                let pace = self.rng.between(150 * MS, 650 * MS);
                for n in 1..=self.rng.between(2, most) {
                    let at = until + n * pace;
                    self.push(at, Event::KillAgain);
                }
            }
            Fault::PowerLoss | Fault::SyncError => self.crash(true, until),
            Fault::Pause => {
                let member = self.member();
                if member.process.is_some() && member.paused_until < until {
                    member.paused_until = until;
                    self.history.outages.push((h, until, Outage::Paused));
                }
            }
            Fault::DiskStall => {
                let member = self.member();
                member.stalled_until = member.stalled_until.max(until);
                self.history.outages.push((h, until + FULL_RETRY, Outage::DiskStalled));
            }
            Fault::SlowDisk => {
                let slowness = self.rng.between(2, 30);
                self.member().slowness = slowness;
                self.push(until, Event::FaultOver(fault));
            }
            Fault::FullDisk => {
                self.member().disk.full = true;
                self.history.outages.push((h, until + 2 * CHECKPOINT_RETRY, Outage::DiskFull));
                self.push(until, Event::FaultOver(fault));
            }
            Fault::Disconnect => {
                let client = self.rng.below(self.clients.len() as u64) as usize;
                self.disconnect(client);
            }
            Fault::DisconnectAll => (0..self.clients.len()).for_each(|client| self.disconnect(client)),
        }
    }

    pub(super) fn fault_over(&mut self, fault: Fault) {
        match fault {
            Fault::SlowDisk => self.member().slowness = 1,
            Fault::FullDisk => {
                let member = self.member();
                member.disk.full = false;
                member.disk.make_spares();
                self.tell_full(false);
            }
            _ => {}
        }
    }

    pub(super) fn heal(&mut self) {
        self.fault_over(Fault::SlowDisk);
        self.fault_over(Fault::FullDisk);
        self.damage_chance = 0;
        let seen = self.rng.fork();
        workload::add_prober(self, seen);
    }

    pub(super) fn crash(&mut self, power_loss: bool, until: u64) {
        let h = self.h;
        let member = self.member();
        if member.process.is_none() {
            return;
        }
        let alarm_left = member.process.as_ref().is_some_and(|process| process.was_full);
        if !member.process.as_ref().is_some_and(|process| process.active) {
            // It never got back from the crash before.
            let since = member.down_since;
            member.crash(h, power_loss);
            member.down_since = since;
        } else {
            member.crash(h, power_loss);
        }
        self.alarm_left |= alarm_left;
        // What is applied was stamped a commit ago.
        let stamped_at = self.tap.stamped_at.saturating_sub(100 * MS);
        self.history.outages.push((stamped_at, h, Outage::Unstamped));
        // Whoever is dead is not paused any more.
        for (_, end, _) in self.history.outages.iter_mut().filter(|(.., kind)| *kind == Outage::Paused) {
            *end = (*end).min(h);
        }
        self.push(until, Event::Start);
        (0..self.clients.len()).for_each(|client| self.disconnect(client));
    }
}
