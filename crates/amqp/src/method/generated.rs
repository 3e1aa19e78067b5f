//! One struct per method, and `Method`, which is any of them.
//!
//! Generated from `spec/methods.toml` by `cargo xtask gen`. Do not edit: change the table.

use bytes::{BufMut, BytesMut};

use super::{refused, unknown_class, unknown_method};
use crate::error::Error;
use crate::reader::Reader;

/// Any method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method<'a> {
    ConnectionStart(connection::Start<'a>),
    ConnectionStartOk(connection::StartOk<'a>),
    ConnectionSecure(connection::Secure<'a>),
    ConnectionSecureOk(connection::SecureOk<'a>),
    ConnectionTune(connection::Tune),
    ConnectionTuneOk(connection::TuneOk),
    ConnectionOpen(connection::Open<'a>),
    ConnectionOpenOk(connection::OpenOk),
    ConnectionClose(connection::Close<'a>),
    ConnectionCloseOk(connection::CloseOk),
    ConnectionBlocked(connection::Blocked<'a>),
    ConnectionUnblocked(connection::Unblocked),
    ConnectionUpdateSecret(connection::UpdateSecret<'a>),
    ConnectionUpdateSecretOk(connection::UpdateSecretOk),
    ChannelOpen(channel::Open),
    ChannelOpenOk(channel::OpenOk),
    ChannelFlow(channel::Flow),
    ChannelFlowOk(channel::FlowOk),
    ChannelClose(channel::Close<'a>),
    ChannelCloseOk(channel::CloseOk),
    ExchangeDeclare(exchange::Declare<'a>),
    ExchangeDeclareOk(exchange::DeclareOk),
    ExchangeDelete(exchange::Delete<'a>),
    ExchangeDeleteOk(exchange::DeleteOk),
    ExchangeBind(exchange::Bind<'a>),
    ExchangeBindOk(exchange::BindOk),
    ExchangeUnbind(exchange::Unbind<'a>),
    ExchangeUnbindOk(exchange::UnbindOk),
    QueueDeclare(queue::Declare<'a>),
    QueueDeclareOk(queue::DeclareOk<'a>),
    QueueBind(queue::Bind<'a>),
    QueueBindOk(queue::BindOk),
    QueuePurge(queue::Purge<'a>),
    QueuePurgeOk(queue::PurgeOk),
    QueueDelete(queue::Delete<'a>),
    QueueDeleteOk(queue::DeleteOk),
    QueueUnbind(queue::Unbind<'a>),
    QueueUnbindOk(queue::UnbindOk),
    BasicQos(basic::Qos),
    BasicQosOk(basic::QosOk),
    BasicConsume(basic::Consume<'a>),
    BasicConsumeOk(basic::ConsumeOk<'a>),
    BasicCancel(basic::Cancel<'a>),
    BasicCancelOk(basic::CancelOk<'a>),
    BasicPublish(basic::Publish<'a>),
    BasicReturn(basic::Return<'a>),
    BasicDeliver(basic::Deliver<'a>),
    BasicGet(basic::Get<'a>),
    BasicGetOk(basic::GetOk<'a>),
    BasicGetEmpty(basic::GetEmpty),
    BasicAck(basic::Ack),
    BasicReject(basic::Reject),
    BasicRecoverAsync(basic::RecoverAsync),
    BasicRecover(basic::Recover),
    BasicRecoverOk(basic::RecoverOk),
    BasicNack(basic::Nack),
    ConfirmSelect(confirm::Select),
    ConfirmSelectOk(confirm::SelectOk),
    TxSelect(tx::Select),
    TxSelectOk(tx::SelectOk),
    TxCommit(tx::Commit),
    TxCommitOk(tx::CommitOk),
    TxRollback(tx::Rollback),
    TxRollbackOk(tx::RollbackOk),
}

impl<'a> Method<'a> {
    /// Reads a method frame's payload: the ids of class and method, then the fields.
    ///
    /// # Errors
    /// 502 for fields that are malformed, missing or too many; 503 for an unknown class; 540 for an
    /// unknown method of a known class.
    #[inline]
    pub fn decode(payload: &'a [u8]) -> Result<Method<'a>, Error> {
        let mut reader = Reader::new(payload);
        let ids = reader.u16().and_then(|class| Ok((class, reader.u16()?)));
        let (class, method) = ids.map_err(|fault| refused("method", fault))?;
        match class {
            10 => match method {
                10 => connection::Start::decode(reader)
                    .map(Method::ConnectionStart)
                    .map_err(|fault| refused("connection.start", fault)),
                11 => connection::StartOk::decode(reader)
                    .map(Method::ConnectionStartOk)
                    .map_err(|fault| refused("connection.start-ok", fault)),
                20 => connection::Secure::decode(reader)
                    .map(Method::ConnectionSecure)
                    .map_err(|fault| refused("connection.secure", fault)),
                21 => connection::SecureOk::decode(reader)
                    .map(Method::ConnectionSecureOk)
                    .map_err(|fault| refused("connection.secure-ok", fault)),
                30 => connection::Tune::decode(reader)
                    .map(Method::ConnectionTune)
                    .map_err(|fault| refused("connection.tune", fault)),
                31 => connection::TuneOk::decode(reader)
                    .map(Method::ConnectionTuneOk)
                    .map_err(|fault| refused("connection.tune-ok", fault)),
                40 => connection::Open::decode(reader)
                    .map(Method::ConnectionOpen)
                    .map_err(|fault| refused("connection.open", fault)),
                41 => connection::OpenOk::decode(reader)
                    .map(Method::ConnectionOpenOk)
                    .map_err(|fault| refused("connection.open-ok", fault)),
                50 => connection::Close::decode(reader)
                    .map(Method::ConnectionClose)
                    .map_err(|fault| refused("connection.close", fault)),
                51 => reader
                    .finish()
                    .map(|()| Method::ConnectionCloseOk(connection::CloseOk))
                    .map_err(|fault| refused("connection.close-ok", fault)),
                60 => connection::Blocked::decode(reader)
                    .map(Method::ConnectionBlocked)
                    .map_err(|fault| refused("connection.blocked", fault)),
                61 => reader
                    .finish()
                    .map(|()| Method::ConnectionUnblocked(connection::Unblocked))
                    .map_err(|fault| refused("connection.unblocked", fault)),
                70 => connection::UpdateSecret::decode(reader)
                    .map(Method::ConnectionUpdateSecret)
                    .map_err(|fault| refused("connection.update-secret", fault)),
                71 => reader
                    .finish()
                    .map(|()| Method::ConnectionUpdateSecretOk(connection::UpdateSecretOk))
                    .map_err(|fault| refused("connection.update-secret-ok", fault)),
                _ => Err(unknown_method("connection", method)),
            },
            20 => match method {
                10 => channel::Open::decode(reader)
                    .map(Method::ChannelOpen)
                    .map_err(|fault| refused("channel.open", fault)),
                11 => channel::OpenOk::decode(reader)
                    .map(Method::ChannelOpenOk)
                    .map_err(|fault| refused("channel.open-ok", fault)),
                20 => channel::Flow::decode(reader)
                    .map(Method::ChannelFlow)
                    .map_err(|fault| refused("channel.flow", fault)),
                21 => channel::FlowOk::decode(reader)
                    .map(Method::ChannelFlowOk)
                    .map_err(|fault| refused("channel.flow-ok", fault)),
                40 => channel::Close::decode(reader)
                    .map(Method::ChannelClose)
                    .map_err(|fault| refused("channel.close", fault)),
                41 => reader
                    .finish()
                    .map(|()| Method::ChannelCloseOk(channel::CloseOk))
                    .map_err(|fault| refused("channel.close-ok", fault)),
                _ => Err(unknown_method("channel", method)),
            },
            40 => match method {
                10 => exchange::Declare::decode(reader)
                    .map(Method::ExchangeDeclare)
                    .map_err(|fault| refused("exchange.declare", fault)),
                11 => reader
                    .finish()
                    .map(|()| Method::ExchangeDeclareOk(exchange::DeclareOk))
                    .map_err(|fault| refused("exchange.declare-ok", fault)),
                20 => exchange::Delete::decode(reader)
                    .map(Method::ExchangeDelete)
                    .map_err(|fault| refused("exchange.delete", fault)),
                21 => reader
                    .finish()
                    .map(|()| Method::ExchangeDeleteOk(exchange::DeleteOk))
                    .map_err(|fault| refused("exchange.delete-ok", fault)),
                30 => exchange::Bind::decode(reader)
                    .map(Method::ExchangeBind)
                    .map_err(|fault| refused("exchange.bind", fault)),
                31 => reader
                    .finish()
                    .map(|()| Method::ExchangeBindOk(exchange::BindOk))
                    .map_err(|fault| refused("exchange.bind-ok", fault)),
                40 => exchange::Unbind::decode(reader)
                    .map(Method::ExchangeUnbind)
                    .map_err(|fault| refused("exchange.unbind", fault)),
                51 => reader
                    .finish()
                    .map(|()| Method::ExchangeUnbindOk(exchange::UnbindOk))
                    .map_err(|fault| refused("exchange.unbind-ok", fault)),
                _ => Err(unknown_method("exchange", method)),
            },
            50 => match method {
                10 => queue::Declare::decode(reader)
                    .map(Method::QueueDeclare)
                    .map_err(|fault| refused("queue.declare", fault)),
                11 => queue::DeclareOk::decode(reader)
                    .map(Method::QueueDeclareOk)
                    .map_err(|fault| refused("queue.declare-ok", fault)),
                20 => queue::Bind::decode(reader)
                    .map(Method::QueueBind)
                    .map_err(|fault| refused("queue.bind", fault)),
                21 => reader
                    .finish()
                    .map(|()| Method::QueueBindOk(queue::BindOk))
                    .map_err(|fault| refused("queue.bind-ok", fault)),
                30 => queue::Purge::decode(reader)
                    .map(Method::QueuePurge)
                    .map_err(|fault| refused("queue.purge", fault)),
                31 => queue::PurgeOk::decode(reader)
                    .map(Method::QueuePurgeOk)
                    .map_err(|fault| refused("queue.purge-ok", fault)),
                40 => queue::Delete::decode(reader)
                    .map(Method::QueueDelete)
                    .map_err(|fault| refused("queue.delete", fault)),
                41 => queue::DeleteOk::decode(reader)
                    .map(Method::QueueDeleteOk)
                    .map_err(|fault| refused("queue.delete-ok", fault)),
                50 => queue::Unbind::decode(reader)
                    .map(Method::QueueUnbind)
                    .map_err(|fault| refused("queue.unbind", fault)),
                51 => reader
                    .finish()
                    .map(|()| Method::QueueUnbindOk(queue::UnbindOk))
                    .map_err(|fault| refused("queue.unbind-ok", fault)),
                _ => Err(unknown_method("queue", method)),
            },
            60 => match method {
                10 => basic::Qos::decode(reader)
                    .map(Method::BasicQos)
                    .map_err(|fault| refused("basic.qos", fault)),
                11 => reader
                    .finish()
                    .map(|()| Method::BasicQosOk(basic::QosOk))
                    .map_err(|fault| refused("basic.qos-ok", fault)),
                20 => basic::Consume::decode(reader)
                    .map(Method::BasicConsume)
                    .map_err(|fault| refused("basic.consume", fault)),
                21 => basic::ConsumeOk::decode(reader)
                    .map(Method::BasicConsumeOk)
                    .map_err(|fault| refused("basic.consume-ok", fault)),
                30 => basic::Cancel::decode(reader)
                    .map(Method::BasicCancel)
                    .map_err(|fault| refused("basic.cancel", fault)),
                31 => basic::CancelOk::decode(reader)
                    .map(Method::BasicCancelOk)
                    .map_err(|fault| refused("basic.cancel-ok", fault)),
                40 => basic::Publish::decode(reader)
                    .map(Method::BasicPublish)
                    .map_err(|fault| refused("basic.publish", fault)),
                50 => basic::Return::decode(reader)
                    .map(Method::BasicReturn)
                    .map_err(|fault| refused("basic.return", fault)),
                60 => basic::Deliver::decode(reader)
                    .map(Method::BasicDeliver)
                    .map_err(|fault| refused("basic.deliver", fault)),
                70 => basic::Get::decode(reader)
                    .map(Method::BasicGet)
                    .map_err(|fault| refused("basic.get", fault)),
                71 => basic::GetOk::decode(reader)
                    .map(Method::BasicGetOk)
                    .map_err(|fault| refused("basic.get-ok", fault)),
                72 => basic::GetEmpty::decode(reader)
                    .map(Method::BasicGetEmpty)
                    .map_err(|fault| refused("basic.get-empty", fault)),
                80 => basic::Ack::decode(reader)
                    .map(Method::BasicAck)
                    .map_err(|fault| refused("basic.ack", fault)),
                90 => basic::Reject::decode(reader)
                    .map(Method::BasicReject)
                    .map_err(|fault| refused("basic.reject", fault)),
                100 => basic::RecoverAsync::decode(reader)
                    .map(Method::BasicRecoverAsync)
                    .map_err(|fault| refused("basic.recover-async", fault)),
                110 => basic::Recover::decode(reader)
                    .map(Method::BasicRecover)
                    .map_err(|fault| refused("basic.recover", fault)),
                111 => reader
                    .finish()
                    .map(|()| Method::BasicRecoverOk(basic::RecoverOk))
                    .map_err(|fault| refused("basic.recover-ok", fault)),
                120 => basic::Nack::decode(reader)
                    .map(Method::BasicNack)
                    .map_err(|fault| refused("basic.nack", fault)),
                _ => Err(unknown_method("basic", method)),
            },
            85 => match method {
                10 => confirm::Select::decode(reader)
                    .map(Method::ConfirmSelect)
                    .map_err(|fault| refused("confirm.select", fault)),
                11 => reader
                    .finish()
                    .map(|()| Method::ConfirmSelectOk(confirm::SelectOk))
                    .map_err(|fault| refused("confirm.select-ok", fault)),
                _ => Err(unknown_method("confirm", method)),
            },
            90 => match method {
                10 => reader
                    .finish()
                    .map(|()| Method::TxSelect(tx::Select))
                    .map_err(|fault| refused("tx.select", fault)),
                11 => reader
                    .finish()
                    .map(|()| Method::TxSelectOk(tx::SelectOk))
                    .map_err(|fault| refused("tx.select-ok", fault)),
                20 => reader
                    .finish()
                    .map(|()| Method::TxCommit(tx::Commit))
                    .map_err(|fault| refused("tx.commit", fault)),
                21 => reader
                    .finish()
                    .map(|()| Method::TxCommitOk(tx::CommitOk))
                    .map_err(|fault| refused("tx.commit-ok", fault)),
                30 => reader
                    .finish()
                    .map(|()| Method::TxRollback(tx::Rollback))
                    .map_err(|fault| refused("tx.rollback", fault)),
                31 => reader
                    .finish()
                    .map(|()| Method::TxRollbackOk(tx::RollbackOk))
                    .map_err(|fault| refused("tx.rollback-ok", fault)),
                _ => Err(unknown_method("tx", method)),
            },
            _ => Err(unknown_class(class, method)),
        }
    }

    /// Writes a method frame's payload. Of a short string over 255 bytes the part that fits is written.
    pub fn encode(&self, out: &mut BytesMut) {
        let (class, method) = self.ids();
        out.put_u16(class);
        out.put_u16(method);
        match self {
            Self::ConnectionStart(method) => method.encode(out),
            Self::ConnectionStartOk(method) => method.encode(out),
            Self::ConnectionSecure(method) => method.encode(out),
            Self::ConnectionSecureOk(method) => method.encode(out),
            Self::ConnectionTune(method) => method.encode(out),
            Self::ConnectionTuneOk(method) => method.encode(out),
            Self::ConnectionOpen(method) => method.encode(out),
            Self::ConnectionOpenOk(method) => method.encode(out),
            Self::ConnectionClose(method) => method.encode(out),
            Self::ConnectionCloseOk(_) => {}
            Self::ConnectionBlocked(method) => method.encode(out),
            Self::ConnectionUnblocked(_) => {}
            Self::ConnectionUpdateSecret(method) => method.encode(out),
            Self::ConnectionUpdateSecretOk(_) => {}
            Self::ChannelOpen(method) => method.encode(out),
            Self::ChannelOpenOk(method) => method.encode(out),
            Self::ChannelFlow(method) => method.encode(out),
            Self::ChannelFlowOk(method) => method.encode(out),
            Self::ChannelClose(method) => method.encode(out),
            Self::ChannelCloseOk(_) => {}
            Self::ExchangeDeclare(method) => method.encode(out),
            Self::ExchangeDeclareOk(_) => {}
            Self::ExchangeDelete(method) => method.encode(out),
            Self::ExchangeDeleteOk(_) => {}
            Self::ExchangeBind(method) => method.encode(out),
            Self::ExchangeBindOk(_) => {}
            Self::ExchangeUnbind(method) => method.encode(out),
            Self::ExchangeUnbindOk(_) => {}
            Self::QueueDeclare(method) => method.encode(out),
            Self::QueueDeclareOk(method) => method.encode(out),
            Self::QueueBind(method) => method.encode(out),
            Self::QueueBindOk(_) => {}
            Self::QueuePurge(method) => method.encode(out),
            Self::QueuePurgeOk(method) => method.encode(out),
            Self::QueueDelete(method) => method.encode(out),
            Self::QueueDeleteOk(method) => method.encode(out),
            Self::QueueUnbind(method) => method.encode(out),
            Self::QueueUnbindOk(_) => {}
            Self::BasicQos(method) => method.encode(out),
            Self::BasicQosOk(_) => {}
            Self::BasicConsume(method) => method.encode(out),
            Self::BasicConsumeOk(method) => method.encode(out),
            Self::BasicCancel(method) => method.encode(out),
            Self::BasicCancelOk(method) => method.encode(out),
            Self::BasicPublish(method) => method.encode(out),
            Self::BasicReturn(method) => method.encode(out),
            Self::BasicDeliver(method) => method.encode(out),
            Self::BasicGet(method) => method.encode(out),
            Self::BasicGetOk(method) => method.encode(out),
            Self::BasicGetEmpty(method) => method.encode(out),
            Self::BasicAck(method) => method.encode(out),
            Self::BasicReject(method) => method.encode(out),
            Self::BasicRecoverAsync(method) => method.encode(out),
            Self::BasicRecover(method) => method.encode(out),
            Self::BasicRecoverOk(_) => {}
            Self::BasicNack(method) => method.encode(out),
            Self::ConfirmSelect(method) => method.encode(out),
            Self::ConfirmSelectOk(_) => {}
            Self::TxSelect(_) => {}
            Self::TxSelectOk(_) => {}
            Self::TxCommit(_) => {}
            Self::TxCommitOk(_) => {}
            Self::TxRollback(_) => {}
            Self::TxRollbackOk(_) => {}
        }
    }

    /// The ids of class and method.
    pub fn ids(&self) -> (u16, u16) {
        match self {
            Self::ConnectionStart(_) => (10, 10),
            Self::ConnectionStartOk(_) => (10, 11),
            Self::ConnectionSecure(_) => (10, 20),
            Self::ConnectionSecureOk(_) => (10, 21),
            Self::ConnectionTune(_) => (10, 30),
            Self::ConnectionTuneOk(_) => (10, 31),
            Self::ConnectionOpen(_) => (10, 40),
            Self::ConnectionOpenOk(_) => (10, 41),
            Self::ConnectionClose(_) => (10, 50),
            Self::ConnectionCloseOk(_) => (10, 51),
            Self::ConnectionBlocked(_) => (10, 60),
            Self::ConnectionUnblocked(_) => (10, 61),
            Self::ConnectionUpdateSecret(_) => (10, 70),
            Self::ConnectionUpdateSecretOk(_) => (10, 71),
            Self::ChannelOpen(_) => (20, 10),
            Self::ChannelOpenOk(_) => (20, 11),
            Self::ChannelFlow(_) => (20, 20),
            Self::ChannelFlowOk(_) => (20, 21),
            Self::ChannelClose(_) => (20, 40),
            Self::ChannelCloseOk(_) => (20, 41),
            Self::ExchangeDeclare(_) => (40, 10),
            Self::ExchangeDeclareOk(_) => (40, 11),
            Self::ExchangeDelete(_) => (40, 20),
            Self::ExchangeDeleteOk(_) => (40, 21),
            Self::ExchangeBind(_) => (40, 30),
            Self::ExchangeBindOk(_) => (40, 31),
            Self::ExchangeUnbind(_) => (40, 40),
            Self::ExchangeUnbindOk(_) => (40, 51),
            Self::QueueDeclare(_) => (50, 10),
            Self::QueueDeclareOk(_) => (50, 11),
            Self::QueueBind(_) => (50, 20),
            Self::QueueBindOk(_) => (50, 21),
            Self::QueuePurge(_) => (50, 30),
            Self::QueuePurgeOk(_) => (50, 31),
            Self::QueueDelete(_) => (50, 40),
            Self::QueueDeleteOk(_) => (50, 41),
            Self::QueueUnbind(_) => (50, 50),
            Self::QueueUnbindOk(_) => (50, 51),
            Self::BasicQos(_) => (60, 10),
            Self::BasicQosOk(_) => (60, 11),
            Self::BasicConsume(_) => (60, 20),
            Self::BasicConsumeOk(_) => (60, 21),
            Self::BasicCancel(_) => (60, 30),
            Self::BasicCancelOk(_) => (60, 31),
            Self::BasicPublish(_) => (60, 40),
            Self::BasicReturn(_) => (60, 50),
            Self::BasicDeliver(_) => (60, 60),
            Self::BasicGet(_) => (60, 70),
            Self::BasicGetOk(_) => (60, 71),
            Self::BasicGetEmpty(_) => (60, 72),
            Self::BasicAck(_) => (60, 80),
            Self::BasicReject(_) => (60, 90),
            Self::BasicRecoverAsync(_) => (60, 100),
            Self::BasicRecover(_) => (60, 110),
            Self::BasicRecoverOk(_) => (60, 111),
            Self::BasicNack(_) => (60, 120),
            Self::ConfirmSelect(_) => (85, 10),
            Self::ConfirmSelectOk(_) => (85, 11),
            Self::TxSelect(_) => (90, 10),
            Self::TxSelectOk(_) => (90, 11),
            Self::TxCommit(_) => (90, 20),
            Self::TxCommitOk(_) => (90, 21),
            Self::TxRollback(_) => (90, 30),
            Self::TxRollbackOk(_) => (90, 31),
        }
    }

    /// The name in AMQP's words, such as `basic.publish`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::ConnectionStart(_) => "connection.start",
            Self::ConnectionStartOk(_) => "connection.start-ok",
            Self::ConnectionSecure(_) => "connection.secure",
            Self::ConnectionSecureOk(_) => "connection.secure-ok",
            Self::ConnectionTune(_) => "connection.tune",
            Self::ConnectionTuneOk(_) => "connection.tune-ok",
            Self::ConnectionOpen(_) => "connection.open",
            Self::ConnectionOpenOk(_) => "connection.open-ok",
            Self::ConnectionClose(_) => "connection.close",
            Self::ConnectionCloseOk(_) => "connection.close-ok",
            Self::ConnectionBlocked(_) => "connection.blocked",
            Self::ConnectionUnblocked(_) => "connection.unblocked",
            Self::ConnectionUpdateSecret(_) => "connection.update-secret",
            Self::ConnectionUpdateSecretOk(_) => "connection.update-secret-ok",
            Self::ChannelOpen(_) => "channel.open",
            Self::ChannelOpenOk(_) => "channel.open-ok",
            Self::ChannelFlow(_) => "channel.flow",
            Self::ChannelFlowOk(_) => "channel.flow-ok",
            Self::ChannelClose(_) => "channel.close",
            Self::ChannelCloseOk(_) => "channel.close-ok",
            Self::ExchangeDeclare(_) => "exchange.declare",
            Self::ExchangeDeclareOk(_) => "exchange.declare-ok",
            Self::ExchangeDelete(_) => "exchange.delete",
            Self::ExchangeDeleteOk(_) => "exchange.delete-ok",
            Self::ExchangeBind(_) => "exchange.bind",
            Self::ExchangeBindOk(_) => "exchange.bind-ok",
            Self::ExchangeUnbind(_) => "exchange.unbind",
            Self::ExchangeUnbindOk(_) => "exchange.unbind-ok",
            Self::QueueDeclare(_) => "queue.declare",
            Self::QueueDeclareOk(_) => "queue.declare-ok",
            Self::QueueBind(_) => "queue.bind",
            Self::QueueBindOk(_) => "queue.bind-ok",
            Self::QueuePurge(_) => "queue.purge",
            Self::QueuePurgeOk(_) => "queue.purge-ok",
            Self::QueueDelete(_) => "queue.delete",
            Self::QueueDeleteOk(_) => "queue.delete-ok",
            Self::QueueUnbind(_) => "queue.unbind",
            Self::QueueUnbindOk(_) => "queue.unbind-ok",
            Self::BasicQos(_) => "basic.qos",
            Self::BasicQosOk(_) => "basic.qos-ok",
            Self::BasicConsume(_) => "basic.consume",
            Self::BasicConsumeOk(_) => "basic.consume-ok",
            Self::BasicCancel(_) => "basic.cancel",
            Self::BasicCancelOk(_) => "basic.cancel-ok",
            Self::BasicPublish(_) => "basic.publish",
            Self::BasicReturn(_) => "basic.return",
            Self::BasicDeliver(_) => "basic.deliver",
            Self::BasicGet(_) => "basic.get",
            Self::BasicGetOk(_) => "basic.get-ok",
            Self::BasicGetEmpty(_) => "basic.get-empty",
            Self::BasicAck(_) => "basic.ack",
            Self::BasicReject(_) => "basic.reject",
            Self::BasicRecoverAsync(_) => "basic.recover-async",
            Self::BasicRecover(_) => "basic.recover",
            Self::BasicRecoverOk(_) => "basic.recover-ok",
            Self::BasicNack(_) => "basic.nack",
            Self::ConfirmSelect(_) => "confirm.select",
            Self::ConfirmSelectOk(_) => "confirm.select-ok",
            Self::TxSelect(_) => "tx.select",
            Self::TxSelectOk(_) => "tx.select-ok",
            Self::TxCommit(_) => "tx.commit",
            Self::TxCommitOk(_) => "tx.commit-ok",
            Self::TxRollback(_) => "tx.rollback",
            Self::TxRollbackOk(_) => "tx.rollback-ok",
        }
    }

    /// Whether a content header follows.
    pub fn has_content(&self) -> bool {
        matches!(
            self,
            Self::BasicPublish(_)
                | Self::BasicReturn(_)
                | Self::BasicDeliver(_)
                | Self::BasicGetOk(_)
        )
    }
}

/// Class `connection` (10).
pub mod connection {
    use crate::error::Fault;
    use crate::field_table::TableRef;
    use crate::field_table::put_table;
    use crate::reader::Reader;
    use crate::writer::put_longstr;
    use crate::writer::put_shortstr;
    use bytes::BufMut;
    use bytes::BytesMut;

    /// `connection.start`: The server's first method: what it is and which logins it takes.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct Start<'a> {
        pub version_major: u8,
        pub version_minor: u8,
        pub server_properties: TableRef<'a>,
        pub mechanisms: &'a [u8],
        pub locales: &'a [u8],
    }

    impl<'a> Start<'a> {
        #[inline]
        pub(super) fn decode(mut reader: Reader<'a>) -> Result<Self, Fault> {
            let version_major = reader.u8()?;
            let version_minor = reader.u8()?;
            let server_properties = reader.table()?;
            let mechanisms = reader.longstr()?;
            let locales = reader.longstr()?;
            reader.finish()?;
            Ok(Self { version_major, version_minor, server_properties, mechanisms, locales })
        }

        #[inline]
        pub(super) fn encode(&self, out: &mut BytesMut) {
            out.put_u8(self.version_major);
            out.put_u8(self.version_minor);
            put_table(out, self.server_properties);
            put_longstr(out, self.mechanisms);
            put_longstr(out, self.locales);
        }
    }

    /// `connection.start-ok`: The client's choice of login mechanism, with its first answer.
    #[derive(Clone, Copy, Default, PartialEq, Eq)]
    pub struct StartOk<'a> {
        pub client_properties: TableRef<'a>,
        pub mechanism: &'a str,
        pub response: &'a [u8],
        pub locale: &'a str,
    }

    impl std::fmt::Debug for StartOk<'_> {
        fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            out.debug_struct("StartOk")
                .field("client_properties", &self.client_properties)
                .field("mechanism", &self.mechanism)
                .field("response", &"(secret)")
                .field("locale", &self.locale)
                .finish()
        }
    }

    impl<'a> StartOk<'a> {
        #[inline]
        pub(super) fn decode(mut reader: Reader<'a>) -> Result<Self, Fault> {
            let client_properties = reader.table()?;
            let mechanism = reader.shortstr()?;
            let response = reader.longstr()?;
            let locale = reader.shortstr()?;
            reader.finish()?;
            Ok(Self { client_properties, mechanism, response, locale })
        }

        #[inline]
        pub(super) fn encode(&self, out: &mut BytesMut) {
            put_table(out, self.client_properties);
            put_shortstr(out, self.mechanism);
            put_longstr(out, self.response);
            put_shortstr(out, self.locale);
        }
    }

    /// `connection.secure`: A further question of the login mechanism.
    #[derive(Clone, Copy, Default, PartialEq, Eq)]
    pub struct Secure<'a> {
        pub challenge: &'a [u8],
    }

    impl std::fmt::Debug for Secure<'_> {
        fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            out.debug_struct("Secure").field("challenge", &"(secret)").finish()
        }
    }

    impl<'a> Secure<'a> {
        #[inline]
        pub(super) fn decode(mut reader: Reader<'a>) -> Result<Self, Fault> {
            let challenge = reader.longstr()?;
            reader.finish()?;
            Ok(Self { challenge })
        }

        #[inline]
        pub(super) fn encode(&self, out: &mut BytesMut) {
            put_longstr(out, self.challenge);
        }
    }

    /// `connection.secure-ok`: The answer to `Secure`.
    #[derive(Clone, Copy, Default, PartialEq, Eq)]
    pub struct SecureOk<'a> {
        pub response: &'a [u8],
    }

    impl std::fmt::Debug for SecureOk<'_> {
        fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            out.debug_struct("SecureOk").field("response", &"(secret)").finish()
        }
    }

    impl<'a> SecureOk<'a> {
        #[inline]
        pub(super) fn decode(mut reader: Reader<'a>) -> Result<Self, Fault> {
            let response = reader.longstr()?;
            reader.finish()?;
            Ok(Self { response })
        }

        #[inline]
        pub(super) fn encode(&self, out: &mut BytesMut) {
            put_longstr(out, self.response);
        }
    }

    /// `connection.tune`: The server's limits. Zero means no limit; `heartbeat` is in seconds and zero turns it off.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct Tune {
        pub channel_max: u16,
        pub frame_max: u32,
        pub heartbeat: u16,
    }

    impl Tune {
        #[inline]
        pub(super) fn decode(mut reader: Reader<'_>) -> Result<Self, Fault> {
            let channel_max = reader.u16()?;
            let frame_max = reader.u32()?;
            let heartbeat = reader.u16()?;
            reader.finish()?;
            Ok(Self { channel_max, frame_max, heartbeat })
        }

        #[inline]
        pub(super) fn encode(&self, out: &mut BytesMut) {
            out.put_u16(self.channel_max);
            out.put_u32(self.frame_max);
            out.put_u16(self.heartbeat);
        }
    }

    /// `connection.tune-ok`: The client's limits, not above the server's.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct TuneOk {
        pub channel_max: u16,
        pub frame_max: u32,
        pub heartbeat: u16,
    }

    impl TuneOk {
        #[inline]
        pub(super) fn decode(mut reader: Reader<'_>) -> Result<Self, Fault> {
            let channel_max = reader.u16()?;
            let frame_max = reader.u32()?;
            let heartbeat = reader.u16()?;
            reader.finish()?;
            Ok(Self { channel_max, frame_max, heartbeat })
        }

        #[inline]
        pub(super) fn encode(&self, out: &mut BytesMut) {
            out.put_u16(self.channel_max);
            out.put_u32(self.frame_max);
            out.put_u16(self.heartbeat);
        }
    }

    /// `connection.open`: Chooses the virtual host.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct Open<'a> {
        pub virtual_host: &'a str,
    }

    impl<'a> Open<'a> {
        #[inline]
        pub(super) fn decode(mut reader: Reader<'a>) -> Result<Self, Fault> {
            let virtual_host = reader.name()?;
            reader.shortstr_bytes()?;
            reader.u8()?;
            reader.finish()?;
            Ok(Self { virtual_host })
        }

        #[inline]
        pub(super) fn encode(&self, out: &mut BytesMut) {
            put_shortstr(out, self.virtual_host);
            out.put_u8(0);
            out.put_u8(0);
        }
    }

    /// `connection.open-ok`: The connection is ready.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct OpenOk;

    impl OpenOk {
        #[inline]
        pub(super) fn decode(mut reader: Reader<'_>) -> Result<Self, Fault> {
            reader.shortstr_bytes()?;
            reader.finish()?;
            Ok(Self)
        }

        #[inline]
        pub(super) fn encode(&self, out: &mut BytesMut) {
            out.put_u8(0);
        }
    }

    /// `connection.close`: Ends the connection. `class_id` and `method_id` name the method at fault, or are zero.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct Close<'a> {
        pub reply_code: u16,
        pub reply_text: &'a str,
        pub class_id: u16,
        pub method_id: u16,
    }

    impl<'a> Close<'a> {
        #[inline]
        pub(super) fn decode(mut reader: Reader<'a>) -> Result<Self, Fault> {
            let reply_code = reader.u16()?;
            let reply_text = reader.shortstr()?;
            let class_id = reader.u16()?;
            let method_id = reader.u16()?;
            reader.finish()?;
            Ok(Self { reply_code, reply_text, class_id, method_id })
        }

        #[inline]
        pub(super) fn encode(&self, out: &mut BytesMut) {
            out.put_u16(self.reply_code);
            put_shortstr(out, self.reply_text);
            out.put_u16(self.class_id);
            out.put_u16(self.method_id);
        }
    }

    /// `connection.close-ok`: The connection is closed.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct CloseOk;

    /// `connection.blocked`: RabbitMQ's extension: publishing is paused by the server.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct Blocked<'a> {
        pub reason: &'a str,
    }

    impl<'a> Blocked<'a> {
        #[inline]
        pub(super) fn decode(mut reader: Reader<'a>) -> Result<Self, Fault> {
            let reason = reader.shortstr()?;
            reader.finish()?;
            Ok(Self { reason })
        }

        #[inline]
        pub(super) fn encode(&self, out: &mut BytesMut) {
            put_shortstr(out, self.reason);
        }
    }

    /// `connection.unblocked`: RabbitMQ's extension: publishing goes on.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct Unblocked;

    /// `connection.update-secret`: RabbitMQ's extension: a fresh credential for a live connection.
    #[derive(Clone, Copy, Default, PartialEq, Eq)]
    pub struct UpdateSecret<'a> {
        pub new_secret: &'a [u8],
        pub reason: &'a str,
    }

    impl std::fmt::Debug for UpdateSecret<'_> {
        fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            out.debug_struct("UpdateSecret")
                .field("new_secret", &"(secret)")
                .field("reason", &self.reason)
                .finish()
        }
    }

    impl<'a> UpdateSecret<'a> {
        #[inline]
        pub(super) fn decode(mut reader: Reader<'a>) -> Result<Self, Fault> {
            let new_secret = reader.longstr()?;
            let reason = reader.shortstr()?;
            reader.finish()?;
            Ok(Self { new_secret, reason })
        }

        #[inline]
        pub(super) fn encode(&self, out: &mut BytesMut) {
            put_longstr(out, self.new_secret);
            put_shortstr(out, self.reason);
        }
    }

    /// `connection.update-secret-ok`: The answer to `UpdateSecret`.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct UpdateSecretOk;
}

/// Class `channel` (20).
pub mod channel {
    use crate::error::Fault;
    use crate::reader::Reader;
    use crate::writer::put_shortstr;
    use bytes::BufMut;
    use bytes::BytesMut;

    /// `channel.open`: Opens the channel of the frame.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct Open;

    impl Open {
        #[inline]
        pub(super) fn decode(mut reader: Reader<'_>) -> Result<Self, Fault> {
            reader.shortstr_bytes()?;
            reader.finish()?;
            Ok(Self)
        }

        #[inline]
        pub(super) fn encode(&self, out: &mut BytesMut) {
            out.put_u8(0);
        }
    }

    /// `channel.open-ok`: The channel is open.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct OpenOk;

    impl OpenOk {
        #[inline]
        pub(super) fn decode(mut reader: Reader<'_>) -> Result<Self, Fault> {
            reader.longstr()?;
            reader.finish()?;
            Ok(Self)
        }

        #[inline]
        pub(super) fn encode(&self, out: &mut BytesMut) {
            out.put_u32(0);
        }
    }

    /// `channel.flow`: Asks the peer to pause or resume content.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct Flow {
        pub active: bool,
    }

    impl Flow {
        #[inline]
        pub(super) fn decode(mut reader: Reader<'_>) -> Result<Self, Fault> {
            let bits = reader.u8()?;
            let active = bits & 0x01 != 0;
            reader.finish()?;
            Ok(Self { active })
        }

        #[inline]
        pub(super) fn encode(&self, out: &mut BytesMut) {
            out.put_u8(u8::from(self.active));
        }
    }

    /// `channel.flow-ok`: The answer to `Flow`.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct FlowOk {
        pub active: bool,
    }

    impl FlowOk {
        #[inline]
        pub(super) fn decode(mut reader: Reader<'_>) -> Result<Self, Fault> {
            let bits = reader.u8()?;
            let active = bits & 0x01 != 0;
            reader.finish()?;
            Ok(Self { active })
        }

        #[inline]
        pub(super) fn encode(&self, out: &mut BytesMut) {
            out.put_u8(u8::from(self.active));
        }
    }

    /// `channel.close`: Ends the channel. `class_id` and `method_id` name the method at fault, or are zero.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct Close<'a> {
        pub reply_code: u16,
        pub reply_text: &'a str,
        pub class_id: u16,
        pub method_id: u16,
    }

    impl<'a> Close<'a> {
        #[inline]
        pub(super) fn decode(mut reader: Reader<'a>) -> Result<Self, Fault> {
            let reply_code = reader.u16()?;
            let reply_text = reader.shortstr()?;
            let class_id = reader.u16()?;
            let method_id = reader.u16()?;
            reader.finish()?;
            Ok(Self { reply_code, reply_text, class_id, method_id })
        }

        #[inline]
        pub(super) fn encode(&self, out: &mut BytesMut) {
            out.put_u16(self.reply_code);
            put_shortstr(out, self.reply_text);
            out.put_u16(self.class_id);
            out.put_u16(self.method_id);
        }
    }

    /// `channel.close-ok`: The channel is closed.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct CloseOk;
}

/// Class `exchange` (40).
pub mod exchange {
    use crate::error::Fault;
    use crate::field_table::TableRef;
    use crate::field_table::put_table;
    use crate::reader::Reader;
    use crate::writer::put_shortstr;
    use bytes::BufMut;
    use bytes::BytesMut;

    /// `exchange.declare`: Creates an exchange, or checks that it is there. `kind` is AMQP's `type`.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct Declare<'a> {
        pub exchange: &'a str,
        pub kind: &'a str,
        pub passive: bool,
        pub durable: bool,
        pub auto_delete: bool,
        pub internal: bool,
        pub no_wait: bool,
        pub arguments: TableRef<'a>,
    }

    impl<'a> Declare<'a> {
        #[inline]
        pub(super) fn decode(mut reader: Reader<'a>) -> Result<Self, Fault> {
            reader.u16()?;
            let exchange = reader.name()?;
            let kind = reader.shortstr()?;
            let bits = reader.u8()?;
            let passive = bits & 0x01 != 0;
            let durable = bits & 0x02 != 0;
            let auto_delete = bits & 0x04 != 0;
            let internal = bits & 0x08 != 0;
            let no_wait = bits & 0x10 != 0;
            let arguments = reader.table()?;
            reader.finish()?;
            Ok(Self { exchange, kind, passive, durable, auto_delete, internal, no_wait, arguments })
        }

        #[inline]
        pub(super) fn encode(&self, out: &mut BytesMut) {
            out.put_u16(0);
            put_shortstr(out, self.exchange);
            put_shortstr(out, self.kind);
            out.put_u8(
                u8::from(self.passive)
                    | u8::from(self.durable) << 1
                    | u8::from(self.auto_delete) << 2
                    | u8::from(self.internal) << 3
                    | u8::from(self.no_wait) << 4,
            );
            put_table(out, self.arguments);
        }
    }

    /// `exchange.declare-ok`: The answer to `Declare`.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct DeclareOk;

    /// `exchange.delete`: Deletes an exchange.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct Delete<'a> {
        pub exchange: &'a str,
        pub if_unused: bool,
        pub no_wait: bool,
    }

    impl<'a> Delete<'a> {
        #[inline]
        pub(super) fn decode(mut reader: Reader<'a>) -> Result<Self, Fault> {
            reader.u16()?;
            let exchange = reader.name()?;
            let bits = reader.u8()?;
            let if_unused = bits & 0x01 != 0;
            let no_wait = bits & 0x02 != 0;
            reader.finish()?;
            Ok(Self { exchange, if_unused, no_wait })
        }

        #[inline]
        pub(super) fn encode(&self, out: &mut BytesMut) {
            out.put_u16(0);
            put_shortstr(out, self.exchange);
            out.put_u8(u8::from(self.if_unused) | u8::from(self.no_wait) << 1);
        }
    }

    /// `exchange.delete-ok`: The answer to `Delete`.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct DeleteOk;

    /// `exchange.bind`: RabbitMQ's extension: messages of `source` go to the exchange `destination` too.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct Bind<'a> {
        pub destination: &'a str,
        pub source: &'a str,
        pub routing_key: &'a str,
        pub no_wait: bool,
        pub arguments: TableRef<'a>,
    }

    impl<'a> Bind<'a> {
        #[inline]
        pub(super) fn decode(mut reader: Reader<'a>) -> Result<Self, Fault> {
            reader.u16()?;
            let destination = reader.name()?;
            let source = reader.name()?;
            let routing_key = reader.name()?;
            let bits = reader.u8()?;
            let no_wait = bits & 0x01 != 0;
            let arguments = reader.table()?;
            reader.finish()?;
            Ok(Self { destination, source, routing_key, no_wait, arguments })
        }

        #[inline]
        pub(super) fn encode(&self, out: &mut BytesMut) {
            out.put_u16(0);
            put_shortstr(out, self.destination);
            put_shortstr(out, self.source);
            put_shortstr(out, self.routing_key);
            out.put_u8(u8::from(self.no_wait));
            put_table(out, self.arguments);
        }
    }

    /// `exchange.bind-ok`: The answer to `Bind`.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct BindOk;

    /// `exchange.unbind`: Undoes `Bind`.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct Unbind<'a> {
        pub destination: &'a str,
        pub source: &'a str,
        pub routing_key: &'a str,
        pub no_wait: bool,
        pub arguments: TableRef<'a>,
    }

    impl<'a> Unbind<'a> {
        #[inline]
        pub(super) fn decode(mut reader: Reader<'a>) -> Result<Self, Fault> {
            reader.u16()?;
            let destination = reader.name()?;
            let source = reader.name()?;
            let routing_key = reader.name()?;
            let bits = reader.u8()?;
            let no_wait = bits & 0x01 != 0;
            let arguments = reader.table()?;
            reader.finish()?;
            Ok(Self { destination, source, routing_key, no_wait, arguments })
        }

        #[inline]
        pub(super) fn encode(&self, out: &mut BytesMut) {
            out.put_u16(0);
            put_shortstr(out, self.destination);
            put_shortstr(out, self.source);
            put_shortstr(out, self.routing_key);
            out.put_u8(u8::from(self.no_wait));
            put_table(out, self.arguments);
        }
    }

    /// `exchange.unbind-ok`: The answer to `Unbind`. Its number is 51, not 41, in RabbitMQ's definition.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct UnbindOk;
}

/// Class `queue` (50).
pub mod queue {
    use crate::error::Fault;
    use crate::field_table::TableRef;
    use crate::field_table::put_table;
    use crate::reader::Reader;
    use crate::writer::put_shortstr;
    use bytes::BufMut;
    use bytes::BytesMut;

    /// `queue.declare`: Creates a queue, or checks that it is there. An empty name asks the server for one.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct Declare<'a> {
        pub queue: &'a str,
        pub passive: bool,
        pub durable: bool,
        pub exclusive: bool,
        pub auto_delete: bool,
        pub no_wait: bool,
        pub arguments: TableRef<'a>,
    }

    impl<'a> Declare<'a> {
        #[inline]
        pub(super) fn decode(mut reader: Reader<'a>) -> Result<Self, Fault> {
            reader.u16()?;
            let queue = reader.name()?;
            let bits = reader.u8()?;
            let passive = bits & 0x01 != 0;
            let durable = bits & 0x02 != 0;
            let exclusive = bits & 0x04 != 0;
            let auto_delete = bits & 0x08 != 0;
            let no_wait = bits & 0x10 != 0;
            let arguments = reader.table()?;
            reader.finish()?;
            Ok(Self { queue, passive, durable, exclusive, auto_delete, no_wait, arguments })
        }

        #[inline]
        pub(super) fn encode(&self, out: &mut BytesMut) {
            out.put_u16(0);
            put_shortstr(out, self.queue);
            out.put_u8(
                u8::from(self.passive)
                    | u8::from(self.durable) << 1
                    | u8::from(self.exclusive) << 2
                    | u8::from(self.auto_delete) << 3
                    | u8::from(self.no_wait) << 4,
            );
            put_table(out, self.arguments);
        }
    }

    /// `queue.declare-ok`: The answer to `Declare`. `message_count` counts ready messages only.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct DeclareOk<'a> {
        pub queue: &'a str,
        pub message_count: u32,
        pub consumer_count: u32,
    }

    impl<'a> DeclareOk<'a> {
        #[inline]
        pub(super) fn decode(mut reader: Reader<'a>) -> Result<Self, Fault> {
            let queue = reader.name()?;
            let message_count = reader.u32()?;
            let consumer_count = reader.u32()?;
            reader.finish()?;
            Ok(Self { queue, message_count, consumer_count })
        }

        #[inline]
        pub(super) fn encode(&self, out: &mut BytesMut) {
            put_shortstr(out, self.queue);
            out.put_u32(self.message_count);
            out.put_u32(self.consumer_count);
        }
    }

    /// `queue.bind`: Messages of the exchange go to the queue.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct Bind<'a> {
        pub queue: &'a str,
        pub exchange: &'a str,
        pub routing_key: &'a str,
        pub no_wait: bool,
        pub arguments: TableRef<'a>,
    }

    impl<'a> Bind<'a> {
        #[inline]
        pub(super) fn decode(mut reader: Reader<'a>) -> Result<Self, Fault> {
            reader.u16()?;
            let queue = reader.name()?;
            let exchange = reader.name()?;
            let routing_key = reader.name()?;
            let bits = reader.u8()?;
            let no_wait = bits & 0x01 != 0;
            let arguments = reader.table()?;
            reader.finish()?;
            Ok(Self { queue, exchange, routing_key, no_wait, arguments })
        }

        #[inline]
        pub(super) fn encode(&self, out: &mut BytesMut) {
            out.put_u16(0);
            put_shortstr(out, self.queue);
            put_shortstr(out, self.exchange);
            put_shortstr(out, self.routing_key);
            out.put_u8(u8::from(self.no_wait));
            put_table(out, self.arguments);
        }
    }

    /// `queue.bind-ok`: The answer to `Bind`.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct BindOk;

    /// `queue.purge`: Drops the ready messages of a queue.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct Purge<'a> {
        pub queue: &'a str,
        pub no_wait: bool,
    }

    impl<'a> Purge<'a> {
        #[inline]
        pub(super) fn decode(mut reader: Reader<'a>) -> Result<Self, Fault> {
            reader.u16()?;
            let queue = reader.name()?;
            let bits = reader.u8()?;
            let no_wait = bits & 0x01 != 0;
            reader.finish()?;
            Ok(Self { queue, no_wait })
        }

        #[inline]
        pub(super) fn encode(&self, out: &mut BytesMut) {
            out.put_u16(0);
            put_shortstr(out, self.queue);
            out.put_u8(u8::from(self.no_wait));
        }
    }

    /// `queue.purge-ok`: The answer to `Purge`: how many were dropped.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct PurgeOk {
        pub message_count: u32,
    }

    impl PurgeOk {
        #[inline]
        pub(super) fn decode(mut reader: Reader<'_>) -> Result<Self, Fault> {
            let message_count = reader.u32()?;
            reader.finish()?;
            Ok(Self { message_count })
        }

        #[inline]
        pub(super) fn encode(&self, out: &mut BytesMut) {
            out.put_u32(self.message_count);
        }
    }

    /// `queue.delete`: Deletes a queue.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct Delete<'a> {
        pub queue: &'a str,
        pub if_unused: bool,
        pub if_empty: bool,
        pub no_wait: bool,
    }

    impl<'a> Delete<'a> {
        #[inline]
        pub(super) fn decode(mut reader: Reader<'a>) -> Result<Self, Fault> {
            reader.u16()?;
            let queue = reader.name()?;
            let bits = reader.u8()?;
            let if_unused = bits & 0x01 != 0;
            let if_empty = bits & 0x02 != 0;
            let no_wait = bits & 0x04 != 0;
            reader.finish()?;
            Ok(Self { queue, if_unused, if_empty, no_wait })
        }

        #[inline]
        pub(super) fn encode(&self, out: &mut BytesMut) {
            out.put_u16(0);
            put_shortstr(out, self.queue);
            out.put_u8(
                u8::from(self.if_unused)
                    | u8::from(self.if_empty) << 1
                    | u8::from(self.no_wait) << 2,
            );
        }
    }

    /// `queue.delete-ok`: The answer to `Delete`: how many ready messages went with it.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct DeleteOk {
        pub message_count: u32,
    }

    impl DeleteOk {
        #[inline]
        pub(super) fn decode(mut reader: Reader<'_>) -> Result<Self, Fault> {
            let message_count = reader.u32()?;
            reader.finish()?;
            Ok(Self { message_count })
        }

        #[inline]
        pub(super) fn encode(&self, out: &mut BytesMut) {
            out.put_u32(self.message_count);
        }
    }

    /// `queue.unbind`: Undoes `Bind`.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct Unbind<'a> {
        pub queue: &'a str,
        pub exchange: &'a str,
        pub routing_key: &'a str,
        pub arguments: TableRef<'a>,
    }

    impl<'a> Unbind<'a> {
        #[inline]
        pub(super) fn decode(mut reader: Reader<'a>) -> Result<Self, Fault> {
            reader.u16()?;
            let queue = reader.name()?;
            let exchange = reader.name()?;
            let routing_key = reader.name()?;
            let arguments = reader.table()?;
            reader.finish()?;
            Ok(Self { queue, exchange, routing_key, arguments })
        }

        #[inline]
        pub(super) fn encode(&self, out: &mut BytesMut) {
            out.put_u16(0);
            put_shortstr(out, self.queue);
            put_shortstr(out, self.exchange);
            put_shortstr(out, self.routing_key);
            put_table(out, self.arguments);
        }
    }

    /// `queue.unbind-ok`: The answer to `Unbind`.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct UnbindOk;
}

/// Class `basic` (60).
pub mod basic {
    use crate::error::Fault;
    use crate::field_table::TableRef;
    use crate::field_table::put_table;
    use crate::reader::Reader;
    use crate::writer::put_shortstr;
    use bytes::BufMut;
    use bytes::BytesMut;

    /// `basic.qos`: How many unacknowledged messages a consumer, or with `global` the channel, may hold.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct Qos {
        pub prefetch_size: u32,
        pub prefetch_count: u16,
        pub global: bool,
    }

    impl Qos {
        #[inline]
        pub(super) fn decode(mut reader: Reader<'_>) -> Result<Self, Fault> {
            let prefetch_size = reader.u32()?;
            let prefetch_count = reader.u16()?;
            let bits = reader.u8()?;
            let global = bits & 0x01 != 0;
            reader.finish()?;
            Ok(Self { prefetch_size, prefetch_count, global })
        }

        #[inline]
        pub(super) fn encode(&self, out: &mut BytesMut) {
            out.put_u32(self.prefetch_size);
            out.put_u16(self.prefetch_count);
            out.put_u8(u8::from(self.global));
        }
    }

    /// `basic.qos-ok`: The answer to `Qos`.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct QosOk;

    /// `basic.consume`: Starts a consumer. An empty tag asks the server for one.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct Consume<'a> {
        pub queue: &'a str,
        pub consumer_tag: &'a str,
        pub no_local: bool,
        pub no_ack: bool,
        pub exclusive: bool,
        pub no_wait: bool,
        pub arguments: TableRef<'a>,
    }

    impl<'a> Consume<'a> {
        #[inline]
        pub(super) fn decode(mut reader: Reader<'a>) -> Result<Self, Fault> {
            reader.u16()?;
            let queue = reader.name()?;
            let consumer_tag = reader.name()?;
            let bits = reader.u8()?;
            let no_local = bits & 0x01 != 0;
            let no_ack = bits & 0x02 != 0;
            let exclusive = bits & 0x04 != 0;
            let no_wait = bits & 0x08 != 0;
            let arguments = reader.table()?;
            reader.finish()?;
            Ok(Self { queue, consumer_tag, no_local, no_ack, exclusive, no_wait, arguments })
        }

        #[inline]
        pub(super) fn encode(&self, out: &mut BytesMut) {
            out.put_u16(0);
            put_shortstr(out, self.queue);
            put_shortstr(out, self.consumer_tag);
            out.put_u8(
                u8::from(self.no_local)
                    | u8::from(self.no_ack) << 1
                    | u8::from(self.exclusive) << 2
                    | u8::from(self.no_wait) << 3,
            );
            put_table(out, self.arguments);
        }
    }

    /// `basic.consume-ok`: The answer to `Consume`.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct ConsumeOk<'a> {
        pub consumer_tag: &'a str,
    }

    impl<'a> ConsumeOk<'a> {
        #[inline]
        pub(super) fn decode(mut reader: Reader<'a>) -> Result<Self, Fault> {
            let consumer_tag = reader.name()?;
            reader.finish()?;
            Ok(Self { consumer_tag })
        }

        #[inline]
        pub(super) fn encode(&self, out: &mut BytesMut) {
            put_shortstr(out, self.consumer_tag);
        }
    }

    /// `basic.cancel`: Ends a consumer. From the server (RabbitMQ's extension): the consumer's queue is gone.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct Cancel<'a> {
        pub consumer_tag: &'a str,
        pub no_wait: bool,
    }

    impl<'a> Cancel<'a> {
        #[inline]
        pub(super) fn decode(mut reader: Reader<'a>) -> Result<Self, Fault> {
            let consumer_tag = reader.name()?;
            let bits = reader.u8()?;
            let no_wait = bits & 0x01 != 0;
            reader.finish()?;
            Ok(Self { consumer_tag, no_wait })
        }

        #[inline]
        pub(super) fn encode(&self, out: &mut BytesMut) {
            put_shortstr(out, self.consumer_tag);
            out.put_u8(u8::from(self.no_wait));
        }
    }

    /// `basic.cancel-ok`: The answer to `Cancel`.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct CancelOk<'a> {
        pub consumer_tag: &'a str,
    }

    impl<'a> CancelOk<'a> {
        #[inline]
        pub(super) fn decode(mut reader: Reader<'a>) -> Result<Self, Fault> {
            let consumer_tag = reader.name()?;
            reader.finish()?;
            Ok(Self { consumer_tag })
        }

        #[inline]
        pub(super) fn encode(&self, out: &mut BytesMut) {
            put_shortstr(out, self.consumer_tag);
        }
    }

    /// `basic.publish`: A message for an exchange.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct Publish<'a> {
        pub exchange: &'a str,
        pub routing_key: &'a str,
        pub mandatory: bool,
        pub immediate: bool,
    }

    impl<'a> Publish<'a> {
        #[inline]
        pub(super) fn decode(mut reader: Reader<'a>) -> Result<Self, Fault> {
            reader.u16()?;
            let exchange = reader.name()?;
            let routing_key = reader.name()?;
            let bits = reader.u8()?;
            let mandatory = bits & 0x01 != 0;
            let immediate = bits & 0x02 != 0;
            reader.finish()?;
            Ok(Self { exchange, routing_key, mandatory, immediate })
        }

        #[inline]
        pub(super) fn encode(&self, out: &mut BytesMut) {
            out.put_u16(0);
            put_shortstr(out, self.exchange);
            put_shortstr(out, self.routing_key);
            out.put_u8(u8::from(self.mandatory) | u8::from(self.immediate) << 1);
        }
    }

    /// `basic.return`: A mandatory message that no queue took.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct Return<'a> {
        pub reply_code: u16,
        pub reply_text: &'a str,
        pub exchange: &'a str,
        pub routing_key: &'a str,
    }

    impl<'a> Return<'a> {
        #[inline]
        pub(super) fn decode(mut reader: Reader<'a>) -> Result<Self, Fault> {
            let reply_code = reader.u16()?;
            let reply_text = reader.shortstr()?;
            let exchange = reader.name()?;
            let routing_key = reader.name()?;
            reader.finish()?;
            Ok(Self { reply_code, reply_text, exchange, routing_key })
        }

        #[inline]
        pub(super) fn encode(&self, out: &mut BytesMut) {
            out.put_u16(self.reply_code);
            put_shortstr(out, self.reply_text);
            put_shortstr(out, self.exchange);
            put_shortstr(out, self.routing_key);
        }
    }

    /// `basic.deliver`: A message for a consumer.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct Deliver<'a> {
        pub consumer_tag: &'a str,
        pub delivery_tag: u64,
        pub redelivered: bool,
        pub exchange: &'a str,
        pub routing_key: &'a str,
    }

    impl<'a> Deliver<'a> {
        #[inline]
        pub(super) fn decode(mut reader: Reader<'a>) -> Result<Self, Fault> {
            let consumer_tag = reader.name()?;
            let delivery_tag = reader.u64()?;
            let bits = reader.u8()?;
            let redelivered = bits & 0x01 != 0;
            let exchange = reader.name()?;
            let routing_key = reader.name()?;
            reader.finish()?;
            Ok(Self { consumer_tag, delivery_tag, redelivered, exchange, routing_key })
        }

        #[inline]
        pub(super) fn encode(&self, out: &mut BytesMut) {
            put_shortstr(out, self.consumer_tag);
            out.put_u64(self.delivery_tag);
            out.put_u8(u8::from(self.redelivered));
            put_shortstr(out, self.exchange);
            put_shortstr(out, self.routing_key);
        }
    }

    /// `basic.get`: Asks for one message.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct Get<'a> {
        pub queue: &'a str,
        pub no_ack: bool,
    }

    impl<'a> Get<'a> {
        #[inline]
        pub(super) fn decode(mut reader: Reader<'a>) -> Result<Self, Fault> {
            reader.u16()?;
            let queue = reader.name()?;
            let bits = reader.u8()?;
            let no_ack = bits & 0x01 != 0;
            reader.finish()?;
            Ok(Self { queue, no_ack })
        }

        #[inline]
        pub(super) fn encode(&self, out: &mut BytesMut) {
            out.put_u16(0);
            put_shortstr(out, self.queue);
            out.put_u8(u8::from(self.no_ack));
        }
    }

    /// `basic.get-ok`: The message asked for. `message_count` counts the ready ones left.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct GetOk<'a> {
        pub delivery_tag: u64,
        pub redelivered: bool,
        pub exchange: &'a str,
        pub routing_key: &'a str,
        pub message_count: u32,
    }

    impl<'a> GetOk<'a> {
        #[inline]
        pub(super) fn decode(mut reader: Reader<'a>) -> Result<Self, Fault> {
            let delivery_tag = reader.u64()?;
            let bits = reader.u8()?;
            let redelivered = bits & 0x01 != 0;
            let exchange = reader.name()?;
            let routing_key = reader.name()?;
            let message_count = reader.u32()?;
            reader.finish()?;
            Ok(Self { delivery_tag, redelivered, exchange, routing_key, message_count })
        }

        #[inline]
        pub(super) fn encode(&self, out: &mut BytesMut) {
            out.put_u64(self.delivery_tag);
            out.put_u8(u8::from(self.redelivered));
            put_shortstr(out, self.exchange);
            put_shortstr(out, self.routing_key);
            out.put_u32(self.message_count);
        }
    }

    /// `basic.get-empty`: There was no message.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct GetEmpty;

    impl GetEmpty {
        #[inline]
        pub(super) fn decode(mut reader: Reader<'_>) -> Result<Self, Fault> {
            reader.shortstr_bytes()?;
            reader.finish()?;
            Ok(Self)
        }

        #[inline]
        pub(super) fn encode(&self, out: &mut BytesMut) {
            out.put_u8(0);
        }
    }

    /// `basic.ack`: From a consumer: done with it. From the server: it is safe (publisher confirm).
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct Ack {
        pub delivery_tag: u64,
        pub multiple: bool,
    }

    impl Ack {
        #[inline]
        pub(super) fn decode(mut reader: Reader<'_>) -> Result<Self, Fault> {
            let delivery_tag = reader.u64()?;
            let bits = reader.u8()?;
            let multiple = bits & 0x01 != 0;
            reader.finish()?;
            Ok(Self { delivery_tag, multiple })
        }

        #[inline]
        pub(super) fn encode(&self, out: &mut BytesMut) {
            out.put_u64(self.delivery_tag);
            out.put_u8(u8::from(self.multiple));
        }
    }

    /// `basic.reject`: A consumer refuses one message.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct Reject {
        pub delivery_tag: u64,
        pub requeue: bool,
    }

    impl Reject {
        #[inline]
        pub(super) fn decode(mut reader: Reader<'_>) -> Result<Self, Fault> {
            let delivery_tag = reader.u64()?;
            let bits = reader.u8()?;
            let requeue = bits & 0x01 != 0;
            reader.finish()?;
            Ok(Self { delivery_tag, requeue })
        }

        #[inline]
        pub(super) fn encode(&self, out: &mut BytesMut) {
            out.put_u64(self.delivery_tag);
            out.put_u8(u8::from(self.requeue));
        }
    }

    /// `basic.recover-async`: `Recover` without an answer.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct RecoverAsync {
        pub requeue: bool,
    }

    impl RecoverAsync {
        #[inline]
        pub(super) fn decode(mut reader: Reader<'_>) -> Result<Self, Fault> {
            let bits = reader.u8()?;
            let requeue = bits & 0x01 != 0;
            reader.finish()?;
            Ok(Self { requeue })
        }

        #[inline]
        pub(super) fn encode(&self, out: &mut BytesMut) {
            out.put_u8(u8::from(self.requeue));
        }
    }

    /// `basic.recover`: Asks for all unacknowledged messages of the channel again.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct Recover {
        pub requeue: bool,
    }

    impl Recover {
        #[inline]
        pub(super) fn decode(mut reader: Reader<'_>) -> Result<Self, Fault> {
            let bits = reader.u8()?;
            let requeue = bits & 0x01 != 0;
            reader.finish()?;
            Ok(Self { requeue })
        }

        #[inline]
        pub(super) fn encode(&self, out: &mut BytesMut) {
            out.put_u8(u8::from(self.requeue));
        }
    }

    /// `basic.recover-ok`: The answer to `Recover`.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct RecoverOk;

    /// `basic.nack`: RabbitMQ's extension: refuses one or many messages. From the server: not taken.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct Nack {
        pub delivery_tag: u64,
        pub multiple: bool,
        pub requeue: bool,
    }

    impl Nack {
        #[inline]
        pub(super) fn decode(mut reader: Reader<'_>) -> Result<Self, Fault> {
            let delivery_tag = reader.u64()?;
            let bits = reader.u8()?;
            let multiple = bits & 0x01 != 0;
            let requeue = bits & 0x02 != 0;
            reader.finish()?;
            Ok(Self { delivery_tag, multiple, requeue })
        }

        #[inline]
        pub(super) fn encode(&self, out: &mut BytesMut) {
            out.put_u64(self.delivery_tag);
            out.put_u8(u8::from(self.multiple) | u8::from(self.requeue) << 1);
        }
    }
}

/// Class `confirm` (85).
pub mod confirm {
    use crate::error::Fault;
    use crate::reader::Reader;
    use bytes::BufMut;
    use bytes::BytesMut;

    /// `confirm.select`: RabbitMQ's extension: from now on every publish of the channel is confirmed.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct Select {
        pub no_wait: bool,
    }

    impl Select {
        #[inline]
        pub(super) fn decode(mut reader: Reader<'_>) -> Result<Self, Fault> {
            let bits = reader.u8()?;
            let no_wait = bits & 0x01 != 0;
            reader.finish()?;
            Ok(Self { no_wait })
        }

        #[inline]
        pub(super) fn encode(&self, out: &mut BytesMut) {
            out.put_u8(u8::from(self.no_wait));
        }
    }

    /// `confirm.select-ok`: The answer to `Select`.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct SelectOk;
}

/// Class `tx` (90).
pub mod tx {

    /// `tx.select`: Makes the channel transactional.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct Select;

    /// `tx.select-ok`: The answer to `Select`.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct SelectOk;

    /// `tx.commit`: Does what was gathered since the last commit or rollback.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct Commit;

    /// `tx.commit-ok`: The answer to `Commit`.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct CommitOk;

    /// `tx.rollback`: Forgets what was gathered.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct Rollback;

    /// `tx.rollback-ok`: The answer to `Rollback`.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct RollbackOk;
}
