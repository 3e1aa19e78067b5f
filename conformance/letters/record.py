"""Records what RabbitMQ makes of dead letters, byte for byte.

usage: record.py HOST PORT > crates/broker/src/porter/letters.txt

Every case is one death: a message is published with properties that are given as bytes, dies in a queue, and
is fetched where it went. The test `letters_are_rabbitmqs_to_the_byte` in `crates/broker/src/porter/tests`
holds the porter against them.
"""
import os
import struct
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "answers"))
from play import Broker  # noqa: E402
from wire import decode, encode, long, short  # noqa: E402

SINK, FANOUT, TOPIC = "letters.sink", "letters.fanout", "letters.topic"


def text(value):
    return b"S" + long(value.encode() if isinstance(value, str) else value)


def number(value):
    return b"l" + struct.pack(">q", value)


def stamp(value):
    return b"T" + struct.pack(">Q", value)


def array(*values):
    return b"A" + long(b"".join(values))


def table(**fields):
    return b"F" + headers(**fields)


def headers(**fields):
    return pairs(*((name.replace("_", "-"), value) for name, value in fields.items()))


def pairs(*fields):
    return long(b"".join(short(name) + value for name, value in fields))


def properties(table=None, expiration=None, rest=False):
    """Flags and values: headers, expiration, and if asked for one of each kind besides."""
    flags, out = 0, b""
    if rest:
        flags, out = flags | 1 << 15, out + short("text/plain")
    if table is not None:
        flags, out = flags | 1 << 13, out + table
    if rest:
        flags, out = flags | 1 << 12 | 1 << 11 | 1 << 10, out + b"\x02\x07" + short("corr")
    if expiration is not None:
        flags, out = flags | 1 << 8, out + short(expiration)
    if rest:
        flags, out = flags | 1 << 7 | 1 << 6 | 1 << 3, out + short("id") + struct.pack(">Q", 7) + short("app")
    return struct.pack(">H", flags) + out


class Client(Broker):
    def call(self, name, **given):
        given = {key.replace("_", "-"): value for key, value in given.items()}
        self.write(1, 1, encode(name, given))
        answer, payload = self.method()
        assert answer.startswith(name), answer
        return payload

    def method(self):
        frame = self.frame(10.0)
        assert frame and frame[0] == 1, frame
        return decode(frame[2])[0], frame[2]

    def publish(self, exchange, key, raw, body=b"body"):
        self.write(1, 1, encode("basic.publish", {"exchange": exchange, "routing-key": key}))
        self.write(2, 1, struct.pack(">HHQ", 60, 0, len(body)) + raw)
        self.write(3, 1, body)

    def get(self, queue):
        """Delivery tag, exchange, key and raw properties."""
        for _ in range(100):
            self.write(1, 1, encode("basic.get", {"queue": queue}))
            answer, payload = self.method()
            if answer == "basic.get-ok":
                break
            assert answer == "basic.get-empty", answer
            time.sleep(0.05)
        tag = int.from_bytes(payload[4:12], "big")
        at = 13
        exchange = payload[at + 1:at + 1 + payload[at]]
        at += 1 + payload[at]
        key = payload[at + 1:at + 1 + payload[at]]
        raw = self.frame(10.0)[2][12:]
        self.frame(10.0)
        return tag, exchange, key, raw


def died_at(raw):
    """The time in the newest death: the first timestamp behind its name."""
    at = raw.find(b"\x04timeT")
    return int.from_bytes(raw[at + 6:at + 14], "big") if at >= 0 else 0


def death(client, name, raw, queue="letters.q", reason="rejected", dlx=FANOUT, dlrk=None, exchange="", key=None):
    """One death; gives the properties of the letter."""
    arguments = {"rejected": "", "expired": "x-message-ttl=i:1", "maxlen": "x-max-length=i:0",
                 "delivery_limit": "x-queue-type=s:quorum,x-delivery-limit=i:0"}[reason]
    arguments += f",x-dead-letter-exchange=s:{dlx}"
    if dlrk is not None:
        arguments += f",x-dead-letter-routing-key=s:{dlrk}"
    client.call("queue.declare", queue=queue, durable=True, arguments=arguments)
    if exchange:
        client.call("queue.bind", queue=queue, exchange=exchange, routing_key="#")
    key = queue if key is None else key
    client.publish(exchange, key, raw)
    if reason in ("rejected", "delivery_limit"):
        tag, *_ = client.get(queue)
        client.write(1, 1, encode("basic.reject", {"delivery": tag, "requeue": reason != "rejected"}))
    tag, new_exchange, new_key, after = client.get(SINK)
    client.write(1, 1, encode("basic.ack", {"delivery": tag}))
    client.call("queue.delete", queue=queue)
    before = short(exchange) + short(key) + raw
    letter = bytes([len(new_exchange)]) + new_exchange + bytes([len(new_key)]) + new_key + after
    print(f"{name}\n  {queue} {reason} {dlx or '-'} {dlrk or '-'} {died_at(after)}")
    print(f"  {before.hex()}\n  {letter.hex()}", flush=True)
    return after


def main():
    client = Client(sys.argv[1], int(sys.argv[2]))
    client.log_in()
    for queue in [SINK] + [f"letters.{name}" for name in "abcdq"]:
        client.call("queue.delete", queue=queue)
    client.call("queue.declare", queue=SINK)
    client.call("exchange.declare", exchange=FANOUT, type="fanout")
    client.call("exchange.declare", exchange=TOPIC, type="topic")
    client.call("queue.bind", queue=SINK, exchange=FANOUT)
    print("# What RabbitMQ 3.10 makes of dead letters. Written by conformance/letters/record.py.")
    print("# name; queue, reason, dead-letter exchange and key, time; head before and after.")

    death(client, "no properties", properties())
    death(client, "all properties", properties(headers(b=text("1"), a=number(2)), "60000", rest=True))
    death(client, "empty headers", properties(headers()))
    death(client, "to a queue by name", properties(), dlx="", dlrk=SINK)
    for reason in ("expired", "maxlen", "delivery_limit"):
        death(client, reason, properties(rest=True), reason=reason)
    death(client, "expired, with an expiration", properties(expiration="1"), reason="expired")
    death(client, "by a topic", properties(), exchange=TOPIC, key="a.b.c")
    death(client, "by a topic, with a key", properties(), exchange=TOPIC, key="a.b.c", dlrk="new")

    copies = headers(CC=array(text("cc.1"), text("cc.2")), z=text("z"))
    death(client, "with copies", properties(copies), exchange=TOPIC, key="k")
    death(client, "with copies and a key", properties(copies), exchange=TOPIC, key="k", dlrk="new")
    twice = pairs(("CC", array(text("one"))), ("b", text("x")), ("CC", array(text("two"))), ("b", text("y")))
    death(client, "names that come twice", properties(twice), exchange=TOPIC, key="k", dlrk="new")

    raw = death(client, "chain 1", properties(headers(u=text("user")), "90000"), queue="letters.a")
    raw = death(client, "chain 2", raw, queue="letters.b", reason="expired")
    raw = death(client, "chain 3", raw, queue="letters.c", reason="maxlen")
    raw = death(client, "chain 4", raw, queue="letters.d")
    raw = death(client, "chain 5, b again", raw, queue="letters.b", reason="expired", exchange=TOPIC, key="other")
    raw = death(client, "chain 6, b refuses", raw, queue="letters.b")
    raw = death(client, "chain 7, a again", raw, queue="letters.a")
    death(client, "chain 8, a once more", raw, queue="letters.a")

    queue, ours = "letters.q", dict(queue=text("letters.q"), reason=text("rejected"))
    for name, value in (
        ("is text", text("[{count: 1}]")),
        ("is a number", number(1)),
        ("is a table", table(count=number(1))),
        ("is empty", array()),
        ("has an empty table", array(table())),
        ("has our death without a count", array(table(**ours))),
        ("has our death with a small count", array(table(**ours, count=b"b\x05"))),
        ("has our death with fields of its own", array(table(z=text("z"), **ours, a=text("a"), count=number(7)))),
        ("has our death twice", array(table(**ours, a=text("1")), table(**ours, a=text("2")))),
        ("has our death twice and others", array(
            table(queue=text("x"), reason=text("expired")),
            table(**ours, count=number(3)),
            table(queue=text("x"), reason=text("expired"), count=number(9)),
            table(**ours, count=number(4)),
            table(queue=text("y"), reason=text("maxlen")),
        )),
        ("has others of different reason", array(
            table(count=number(2), reason=text("expired"), queue=text("letters.q"), time=stamp(1000)),
            table(count=number(1), reason=text("maxlen"), queue=text("letters.q"), time=stamp(900)),
        )),
    ):
        death(client, f"x-death {name}", properties(pairs(("x-death", value), ("a", text("a")))), queue=queue)
    first = pairs(("x-first-death-queue", text("mine")), ("x-first-death-reason", number(1)), ("y", text("y")))
    death(client, "first death from a publisher", properties(first))
    kinds = pairs(
        ("t", b"t\x01"), ("b", b"b\xff"), ("B", b"B\xff"), ("s", b"s\xff\xff"), ("u", b"u\xff\xff"),
        ("I", b"I\xff\xff\xff\xff"), ("i", b"i\xff\xff\xff\xff"), ("l", number(-1)),
        ("f", b"f\x3f\x80\0\0"), ("d", b"d\x3f\xf0\0\0\0\0\0\0"), ("D", b"D\x02\0\0\x01\0"),
        ("S", text(b"\xff\xfe")), ("x", b"x" + long(b"\0\1")), ("T", stamp(5)), ("V", b"V"),
        ("A", array(number(1), array(), table(deep=text("x")))), ("F", table(b=number(1), a=number(2))),
    )
    death(client, "every kind of value", properties(kinds))

    client.call("queue.delete", queue=SINK)
    client.call("exchange.delete", exchange=FANOUT)
    client.call("exchange.delete", exchange=TOPIC)


if __name__ == "__main__":
    main()
