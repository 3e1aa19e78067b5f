//! One of every method, filled from a handful of values: shared by the tests that want them all.

use amqp::{Method, TableRef, basic, channel, confirm, connection, exchange, queue, tx};

/// What the fields are filled with.
#[derive(Debug, Clone)]
pub(crate) struct Filling {
    pub(crate) names: [String; 3],
    pub(crate) bytes: Vec<u8>,
    pub(crate) table: Vec<u8>,
    pub(crate) bits: [bool; 5],
    pub(crate) short: u16,
    pub(crate) long: u32,
    pub(crate) tag: u64,
}

impl Filling {
    /// Every kind of method, once.
    pub(crate) fn methods(&self) -> Vec<Method<'_>> {
        let mut methods = self.connection();
        methods.extend(self.channel_and_exchange());
        methods.extend(self.queue());
        methods.extend(self.basic_of_consumers());
        methods.extend(self.basic_of_messages());
        methods.extend(others(self.bits[0]));
        methods
    }

    fn table(&self) -> TableRef<'_> {
        TableRef::validate(&self.table).expect("the filling's table is valid")
    }

    fn connection(&self) -> Vec<Method<'_>> {
        let Self { names: [a, b, _], bytes, short, long, .. } = self;
        let (a, b, short, long) = (a.as_str(), b.as_str(), *short, *long);
        let [high, low] = short.to_be_bytes();
        vec![
            Method::ConnectionStart(connection::Start {
                version_major: high,
                version_minor: low,
                server_properties: self.table(),
                mechanisms: bytes,
                locales: b.as_bytes(),
            }),
            Method::ConnectionStartOk(connection::StartOk {
                client_properties: self.table(),
                mechanism: a,
                response: bytes,
                locale: b,
            }),
            Method::ConnectionSecure(connection::Secure { challenge: bytes }),
            Method::ConnectionSecureOk(connection::SecureOk { response: bytes }),
            Method::ConnectionTune(connection::Tune {
                channel_max: short,
                frame_max: long,
                heartbeat: !short,
            }),
            Method::ConnectionTuneOk(connection::TuneOk {
                channel_max: !short,
                frame_max: long,
                heartbeat: short,
            }),
            Method::ConnectionOpen(connection::Open { virtual_host: a }),
            Method::ConnectionOpenOk(connection::OpenOk),
            Method::ConnectionClose(connection::Close {
                reply_code: short,
                reply_text: a,
                class_id: 60,
                method_id: 40,
            }),
            Method::ConnectionCloseOk(connection::CloseOk),
            Method::ConnectionBlocked(connection::Blocked { reason: a }),
            Method::ConnectionUnblocked(connection::Unblocked),
            Method::ConnectionUpdateSecret(connection::UpdateSecret {
                new_secret: bytes,
                reason: a,
            }),
            Method::ConnectionUpdateSecretOk(connection::UpdateSecretOk),
        ]
    }

    fn channel_and_exchange(&self) -> Vec<Method<'_>> {
        let Self { names: [a, b, c], bits: [p, q, r, s, t], short, .. } = self;
        let (a, b, c) = (a.as_str(), b.as_str(), c.as_str());
        let arguments = self.table();
        vec![
            Method::ChannelOpen(channel::Open),
            Method::ChannelOpenOk(channel::OpenOk),
            Method::ChannelFlow(channel::Flow { active: *p }),
            Method::ChannelFlowOk(channel::FlowOk { active: *p }),
            Method::ChannelClose(channel::Close {
                reply_code: *short,
                reply_text: c,
                class_id: 50,
                method_id: *short,
            }),
            Method::ChannelCloseOk(channel::CloseOk),
            Method::ExchangeDeclare(exchange::Declare {
                exchange: a,
                kind: b,
                passive: *p,
                durable: *q,
                auto_delete: *r,
                internal: *s,
                no_wait: *t,
                arguments,
            }),
            Method::ExchangeDeclareOk(exchange::DeclareOk),
            Method::ExchangeDelete(exchange::Delete { exchange: a, if_unused: *p, no_wait: *q }),
            Method::ExchangeDeleteOk(exchange::DeleteOk),
            Method::ExchangeBind(exchange::Bind {
                destination: a,
                source: b,
                routing_key: c,
                no_wait: *p,
                arguments,
            }),
            Method::ExchangeBindOk(exchange::BindOk),
            Method::ExchangeUnbind(exchange::Unbind {
                destination: a,
                source: b,
                routing_key: c,
                no_wait: *p,
                arguments,
            }),
            Method::ExchangeUnbindOk(exchange::UnbindOk),
        ]
    }

    fn queue(&self) -> Vec<Method<'_>> {
        let Self { names: [a, b, c], bits: [p, q, r, s, t], long, .. } = self;
        let (a, b, c) = (a.as_str(), b.as_str(), c.as_str());
        let arguments = self.table();
        vec![
            Method::QueueDeclare(queue::Declare {
                queue: a,
                passive: *p,
                durable: *q,
                exclusive: *r,
                auto_delete: *s,
                no_wait: *t,
                arguments,
            }),
            Method::QueueDeclareOk(queue::DeclareOk {
                queue: a,
                message_count: *long,
                consumer_count: !*long,
            }),
            Method::QueueBind(queue::Bind {
                queue: a,
                exchange: b,
                routing_key: c,
                no_wait: *p,
                arguments,
            }),
            Method::QueueBindOk(queue::BindOk),
            Method::QueuePurge(queue::Purge { queue: a, no_wait: *p }),
            Method::QueuePurgeOk(queue::PurgeOk { message_count: *long }),
            Method::QueueDelete(queue::Delete {
                queue: a,
                if_unused: *p,
                if_empty: *q,
                no_wait: *r,
            }),
            Method::QueueDeleteOk(queue::DeleteOk { message_count: *long }),
            Method::QueueUnbind(queue::Unbind { queue: a, exchange: b, routing_key: c, arguments }),
            Method::QueueUnbindOk(queue::UnbindOk),
        ]
    }

    fn basic_of_consumers(&self) -> Vec<Method<'_>> {
        let Self { names: [a, b, _], bits: [p, q, r, s, _], short, tag, .. } = self;
        let (a, b, tag) = (a.as_str(), b.as_str(), *tag);
        vec![
            // The oracle takes the size for a reserved field.
            Method::BasicQos(basic::Qos { prefetch_size: 0, prefetch_count: *short, global: *p }),
            Method::BasicQosOk(basic::QosOk),
            Method::BasicConsume(basic::Consume {
                queue: a,
                consumer_tag: b,
                no_local: *p,
                no_ack: *q,
                exclusive: *r,
                no_wait: *s,
                arguments: self.table(),
            }),
            Method::BasicConsumeOk(basic::ConsumeOk { consumer_tag: a }),
            Method::BasicCancel(basic::Cancel { consumer_tag: a, no_wait: *p }),
            Method::BasicCancelOk(basic::CancelOk { consumer_tag: a }),
            Method::BasicAck(basic::Ack { delivery_tag: tag, multiple: *p }),
            Method::BasicReject(basic::Reject { delivery_tag: tag, requeue: *p }),
            Method::BasicNack(basic::Nack { delivery_tag: tag, multiple: *p, requeue: *q }),
            Method::BasicRecoverAsync(basic::RecoverAsync { requeue: *p }),
            Method::BasicRecover(basic::Recover { requeue: *p }),
            Method::BasicRecoverOk(basic::RecoverOk),
        ]
    }

    fn basic_of_messages(&self) -> Vec<Method<'_>> {
        let Self { names: [a, b, c], bits: [p, q, ..], short, long, tag, .. } = self;
        let (a, b, c, tag) = (a.as_str(), b.as_str(), c.as_str(), *tag);
        vec![
            Method::BasicPublish(basic::Publish {
                exchange: a,
                routing_key: b,
                mandatory: *p,
                immediate: *q,
            }),
            Method::BasicReturn(basic::Return {
                reply_code: *short,
                reply_text: a,
                exchange: b,
                routing_key: c,
            }),
            Method::BasicDeliver(basic::Deliver {
                consumer_tag: a,
                delivery_tag: tag,
                redelivered: *p,
                exchange: b,
                routing_key: c,
            }),
            Method::BasicGet(basic::Get { queue: a, no_ack: *p }),
            Method::BasicGetOk(basic::GetOk {
                delivery_tag: tag,
                redelivered: *p,
                exchange: a,
                routing_key: b,
                message_count: *long,
            }),
            Method::BasicGetEmpty(basic::GetEmpty),
        ]
    }
}

fn others(no_wait: bool) -> Vec<Method<'static>> {
    vec![
        Method::ConfirmSelect(confirm::Select { no_wait }),
        Method::ConfirmSelectOk(confirm::SelectOk),
        Method::TxSelect(tx::Select),
        Method::TxSelectOk(tx::SelectOk),
        Method::TxCommit(tx::Commit),
        Method::TxCommitOk(tx::CommitOk),
        Method::TxRollback(tx::Rollback),
        Method::TxRollbackOk(tx::RollbackOk),
    ]
}
