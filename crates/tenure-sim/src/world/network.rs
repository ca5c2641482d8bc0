//! Connections between clients and the member, and what goes over them.

use super::*;

impl World {
    pub(super) fn disconnect(&mut self, client: usize) {
        if !self.clients[client].connected {
            return;
        }
        let connection = self.clients[client].connection;
        self.clients[client].connected = false;
        self.clients[client].connection = self.draw_connection();
        // What is on its way to the member still gets there for a moment; no answer comes any more.
        let cut = self.h + self.rng.below(2 * MS);
        self.clients[client].cut = (connection, cut);
        let noticed = self.h + self.rng.latency(5 * MS);
        self.push(noticed, Event::Broken(client, connection));
        // The member's edge notices as well, and closes what was on the connection.
        let streams: Vec<StreamId> = self
            .streams
            .iter()
            .filter(|(_, (reader, over, _))| *reader == client && *over == connection)
            .map(|(stream, _)| *stream)
            .collect();
        for stream in streams {
            self.streams.remove(&stream);
            self.push(cut, Event::Close(stream));
        }
    }

    pub(super) fn broken(&mut self, client: usize, connection: u64) {
        let h = self.h;
        let open: Vec<usize> = self.clients[client].open_ops.clone();
        for op in open {
            let op_ref = &mut self.history.ops[op];
            if op_ref.connection == connection && op_ref.recv.is_none() {
                op_ref.recv = Some(h);
                op_ref.abandoned = true;
                workload::answered(self, client, op);
            }
        }
        workload::broken(self, client);
        let back = h + self.rng.latency(30 * MS);
        self.push(back, Event::Reconnect(client));
    }

    /// Sends over the client's connection; what is sent first comes first.
    pub(super) fn send(&mut self, client: usize, input: Input) {
        let span = self.rng.latency(200_000);
        let from = &mut self.clients[client];
        let at = (self.h + span).max(from.sent_until + 1);
        from.sent_until = at;
        let connection = from.connection;
        self.push(at, Event::Arrive(Box::new(Arriving { client, connection, input })));
    }

    pub(super) fn arrive(&mut self, arriving: Arriving) {
        let client = &self.clients[arriving.client];
        let (over, cut) = client.cut;
        if arriving.connection == over && self.h >= cut {
            return;
        }
        if arriving.connection != client.connection && arriving.connection != over {
            return;
        }
        let h = self.h;
        let member = self.member();
        if h < member.paused_until {
            // The same lag for all of one client, so that their order stays.
            let lag =
                (arriving.connection.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ member.paused_until) % SOCKET_LAG;
            let at = member.paused_until + lag;
            self.push(at, Event::Arrive(Box::new(arriving)));
        } else if member.process.is_some() {
            self.input(arriving.input);
        } else {
            let client = arriving.client;
            self.disconnect(client);
        }
    }

    pub(super) fn answer(&mut self, ticket: Ticket, header: Header, answer: Result<Answer, Failure>) {
        let op = ticket.0 as usize;
        self.trace.event(self.h, "answer", ticket.0);
        self.trace.number(header.revision.0 as u64);
        self.trace.number(u64::from(answer.is_ok()));
        let (client, connection) = (self.history.ops[op].client, self.history.ops[op].connection);
        self.send_back(client, connection, Told::Answer(op, header, answer));
    }

    pub(super) fn watch_output(&mut self, stream: StreamId, output: WatchOutput) {
        self.trace.event(self.h, "watch", stream.0);
        if let Some((client, connection, watch)) = self.streams.get(&stream).copied() {
            self.send_back(client, connection, Told::Watch(watch, output));
        }
    }

    pub(super) fn send_back(&mut self, client: usize, connection: u64, told: Told) {
        if self.clients[client].connection != connection || !self.clients[client].connected {
            return;
        }
        let span = self.rng.latency(200_000);
        let to = &mut self.clients[client];
        let at = (self.h + span).max(to.told_until + 1);
        to.told_until = at;
        self.push(at, Event::Tell(client, connection, Box::new(told)));
    }

    pub(super) fn tell(&mut self, client: usize, connection: u64, told: Told) {
        if self.clients[client].connection != connection || !self.clients[client].connected {
            return;
        }
        match told {
            Told::Answer(op, header, answer) => {
                if self.history.ops[op].recv.is_some() {
                    return;
                }
                self.last_header = self.last_header.max(header.revision.0);
                self.history.ops[op].recv = Some(self.h);
                self.history.ops[op].answer = Some((header, answer));
                workload::answered(self, client, op);
            }
            // What was on its way when the watch was given up is not read.
            Told::Watch(watch, _) if self.history.watches[watch].over.is_some() => {}
            Told::Watch(watch, output) => {
                let seen = match &output {
                    WatchOutput::Created { revision, .. } => Seen::Created { revision: revision.0 },
                    WatchOutput::Refused { .. } => Seen::Refused,
                    WatchOutput::Cancelled { .. } => Seen::Cancelled,
                    WatchOutput::Compacted { compacted, .. } => Seen::Compacted { revision: compacted.0 },
                    WatchOutput::Events { revision, batch, .. } => {
                        Seen::Events { revision: revision.0, events: batch.events.clone() }
                    }
                    WatchOutput::Progress { id, revision } => {
                        Seen::Progress { revision: revision.0, whole_stream: *id < 0 }
                    }
                };
                self.history.watches[watch].seen.push((self.h, seen));
                workload::watched(self, client, watch, output);
            }
        }
    }

    /// Asks; `None` without a connection.
    pub(crate) fn ask(&mut self, client: usize, ask: Ask, nth: u32, timeout: u64) -> Option<usize> {
        if !self.clients[client].connected {
            return None;
        }
        let op = self.history.ops.len();
        let ticket = Ticket(op as u64);
        let input = match ask.clone() {
            Ask::Write(write) => Input::Write { ticket, write },
            Ask::Read(read, consistency) => Input::Read { ticket, read, consistency },
            Ask::Renew(ids) => Input::Renew { ticket, ids },
        };
        let connection = self.clients[client].connection;
        self.history.ops.push(Op {
            client,
            connection,
            ask,
            nth,
            send: self.h,
            recv: None,
            answer: None,
            abandoned: false,
        });
        self.clients[client].open_ops.push(op);
        self.send(client, input);
        self.push(self.h + timeout, Event::Timeout(client, op));
        Some(op)
    }

    /// Opens a stream with one watch; `None` without a connection.
    pub(crate) fn watch(&mut self, client: usize, watch: crate::history::Watch) -> Option<(StreamId, usize)> {
        if !self.clients[client].connected {
            return None;
        }
        let stream = StreamId(self.next_stream);
        self.next_stream += 1;
        let index = self.history.watches.len();
        let create = watch.create.clone();
        self.history.watches.push(watch);
        let connection = self.clients[client].connection;
        self.streams.insert(stream, (client, connection, index));
        self.send(client, Input::Watch { stream, request: WatchInput::Create(create) });
        Some((stream, index))
    }

    pub(crate) fn watch_request(&mut self, client: usize, stream: StreamId, request: WatchInput) {
        if self.clients[client].connected && self.streams.contains_key(&stream) {
            if matches!(request, WatchInput::Close) {
                self.streams.remove(&stream);
            }
            self.send(client, Input::Watch { stream, request });
        }
    }
}
