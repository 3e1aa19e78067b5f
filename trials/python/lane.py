"""One lane of a trial with pika: a publisher that counts every confirm itself, or a consumer.

    lane.py publish|consume ADDRESS:PORT,... QUEUE NAME FILE RATE

Writes a history as trials/src/history.rs describes it. SIGTERM: the publisher waits for what is
outstanding, both write their last line and end.
"""

import json
import random
import signal
import sys
import time
import zlib

import pika

WINDOW = 64
TICK_S = 0.02
RETRY_S = 0.05
REST_S = 15
# Codes of a close that are nobody's mistake; 541: a node without a majority.
NO_MISTAKES = (0, 200, 320, 541)


class History:
    def __init__(self, path, name):
        self.file = open(path, "w", encoding="utf-8")
        self.name = name

    def saw(self, f, **more):
        event = {"t": time.monotonic_ns(), "p": self.name, "f": f, **more}
        self.file.write(json.dumps(event) + "\n")

    def disconnected(self):
        t = time.monotonic_ns()
        self.saw("fault", kind="disconnect", node=0, t0=t, t1=t)

    def end(self):
        self.saw("end")
        self.file.close()


class Nodes:
    """Stays with a node while it answers."""

    def __init__(self, addresses):
        self.addresses = [address.rsplit(":", 1) for address in addresses.split(",")]
        self.turn = random.randrange(len(self.addresses))

    def parameters(self):
        host, port = self.addresses[self.turn % len(self.addresses)]
        return pika.ConnectionParameters(host, int(port), heartbeat=10, socket_timeout=5,
                                         stack_timeout=10, blocked_connection_timeout=60)

    def failed(self):
        self.turn += 1


class Publisher:
    """Confirms as they come over the wire: each tag once, `multiple` expanded here."""

    def __init__(self, nodes, queue, name, path, rate):
        self.nodes, self.queue, self.name = nodes, queue, name
        self.batch = max(1, int(rate * TICK_S))
        self.history = History(path, name)
        self.generation = 0
        self.stopping_since = None
        self.ended = False
        self.forget()

    def forget(self):
        self.channel, self.tag, self.outstanding, self.returned = None, 0, {}, set()
        self.prefix = None

    def run(self):
        signal.signal(signal.SIGTERM, self.stop)
        while not self.ended:
            self.generation += 1
            connection = pika.SelectConnection(
                self.nodes.parameters(),
                on_open_callback=self.opened,
                on_open_error_callback=self.not_opened,
                on_close_callback=self.closed)
            self.ended = self.stopping_since is not None
            connection.ioloop.start()
            self.lost()
            time.sleep(RETRY_S)
        self.history.end()

    def stop(self, *_):
        self.stopping_since = time.monotonic()

    def opened(self, connection):
        connection.channel(on_open_callback=self.channel_opened)

    def not_opened(self, connection, _reason):
        self.nodes.failed()
        connection.ioloop.stop()

    def closed(self, connection, reason):
        code = getattr(reason, "reply_code", 0)
        if code not in NO_MISTAKES:
            self.history.saw("protocol", text=f"{self.name}: closed with {reason}")
        connection.ioloop.stop()

    def channel_opened(self, channel):
        self.channel = channel
        self.prefix = f"{self.name}.0.{self.generation}"
        channel.add_on_return_callback(self.came_back)
        channel.add_on_close_callback(self.channel_closed)
        channel.confirm_delivery(self.confirmed, callback=lambda _: self.tick())

    def channel_closed(self, channel, reason):
        code = getattr(reason, "reply_code", 0)
        if code not in NO_MISTAKES:
            self.history.saw("protocol", text=f"{self.name}: channel closed with {reason}")
        if channel.connection.is_open:
            channel.connection.close()

    def tick(self):
        connection = self.channel.connection
        if not self.channel.is_open:
            return
        if self.stopping_since is not None:
            late = time.monotonic() - self.stopping_since > REST_S
            if not self.outstanding or late:
                self.ended = True
                connection.close()
                return
        else:
            for _ in range(self.batch):
                if len(self.outstanding) < WINDOW:
                    self.publish()
        connection.ioloop.call_later(TICK_S, self.tick)

    def publish(self):
        self.tag += 1
        m = f"{self.prefix}:{self.tag}"
        body = m.encode() + b"\n" + random.Random(m).randbytes(hash(m) % 700)
        self.outstanding[self.tag] = m
        self.history.saw("pub", k="inv", m=m, q=[self.queue], h=zlib.crc32(body))
        properties = pika.BasicProperties(delivery_mode=2, message_id=m)
        self.channel.basic_publish("", self.queue, body, properties, mandatory=True)

    def came_back(self, _channel, _method, properties, _body):
        self.returned.add(properties.message_id)

    def confirmed(self, frame):
        method = frame.method
        k = "ok" if method.NAME == "Basic.Ack" else "fail"
        tag = method.delivery_tag
        if method.multiple:
            tags = sorted(t for t in self.outstanding if t <= tag or tag == 0)
        else:
            tags = [tag] if tag in self.outstanding else []
        if not tags or tag > self.tag:
            self.history.saw("protocol", text=f"{self.prefix}: {method} answers nothing")
        for tag in tags:
            m = self.outstanding.pop(tag)
            more = {"returned": True} if m in self.returned else {}
            self.history.saw("pub", k=k, m=m, **more)

    def lost(self):
        for m in self.outstanding.values():
            self.history.saw("pub", k="info", m=m)
        if self.prefix:
            self.history.saw("closed", ch=self.prefix)
        self.forget()


class Consumer:
    def __init__(self, nodes, queue, name, path):
        self.nodes, self.queue, self.name = nodes, queue, name
        self.history = History(path, name)
        self.go_on = True

    def run(self):
        signal.signal(signal.SIGTERM, self.stop)
        while self.go_on:
            try:
                self.session()
            except (pika.exceptions.AMQPError, OSError) as error:
                self.history.disconnected()
                code = getattr(error, "reply_code", 0)
                if code not in NO_MISTAKES:
                    self.history.saw("protocol", text=f"{self.name}: closed with {error!r}")
                time.sleep(RETRY_S)
        self.history.end()

    def stop(self, *_):
        self.go_on = False

    def session(self):
        try:
            connection = pika.BlockingConnection(self.nodes.parameters())
        except (pika.exceptions.AMQPError, OSError):
            self.nodes.failed()
            raise
        channel = connection.channel()
        channel.basic_qos(prefetch_count=50)
        ep = f"{self.name}.{time.monotonic_ns()}"
        self.history.saw("open", q=self.queue, ep=ep)
        for method, properties, body in channel.consume(self.queue, inactivity_timeout=0.1):
            if not self.go_on:
                break
            if method is None:
                continue
            m = properties.message_id or "?"
            same = {"q": self.queue, "m": m, "ep": ep}
            self.history.saw("dlv", tag=method.delivery_tag, red=method.redelivered,
                             h=zlib.crc32(body), **same)
            self.history.saw("ack", **same)
            channel.basic_ack(method.delivery_tag)
        connection.close()


def main():
    role, addresses, queue, name, path, rate = sys.argv[1:]
    if role == "publish":
        Publisher(Nodes(addresses), queue, name, path, int(rate)).run()
    else:
        Consumer(Nodes(addresses), queue, name, path).run()


main()
