"""Plays the conversations of conformance/answers.txt with a broker and prints what it answered.

usage: answers.py HOST PORT [NAME...]

A conversation is a name at the left margin and lines `> CHANNEL METHOD FIELD=VALUE...` below it, what the
client sends; the lines `< ...` that follow are what RabbitMQ answered. This prints the same file with the
answers of the broker it was given. Nothing here but the standard library: a client library would not send
most of this.
"""
import re
import socket
import struct
import sys

# Fields by letter: s short string, S long string, b bit, B octet, H short, I long, Q long long, t table,
# _ a reserved short string, 0 a reserved short.
METHODS = {
    "connection.start": (10, 10, "versions:v"),
    "connection.start-ok": (10, 11, "properties:t mechanism:s response:S locale:s"),
    "connection.tune": (10, 30, "channel-max:H frame-max:I heartbeat:H"),
    "connection.tune-ok": (10, 31, "channel-max:H frame-max:I heartbeat:H"),
    "connection.open": (10, 40, "vhost:s reserved:_ insist:b"),
    "connection.open-ok": (10, 41, "reserved:_"),
    "connection.close": (10, 50, "code:H text:s class:H method:H"),
    "connection.close-ok": (10, 51, ""),
    "channel.open": (20, 10, "reserved:_"),
    "channel.open-ok": (20, 11, "reserved:L"),
    "channel.flow": (20, 20, "active:b"),
    "channel.flow-ok": (20, 21, "active:b"),
    "channel.close": (20, 40, "code:H text:s class:H method:H"),
    "channel.close-ok": (20, 41, ""),
    "exchange.declare": (40, 10, "r:0 exchange:s type:s passive:b durable:b auto-delete:b internal:b nowait:b arguments:t"),
    "exchange.declare-ok": (40, 11, ""),
    "exchange.delete": (40, 20, "r:0 exchange:s if-unused:b nowait:b"),
    "exchange.delete-ok": (40, 21, ""),
    "exchange.bind": (40, 30, "r:0 destination:s source:s routing-key:s nowait:b arguments:t"),
    "exchange.bind-ok": (40, 31, ""),
    "exchange.unbind": (40, 40, "r:0 destination:s source:s routing-key:s nowait:b arguments:t"),
    "exchange.unbind-ok": (40, 51, ""),
    "queue.declare": (50, 10, "r:0 queue:s passive:b durable:b exclusive:b auto-delete:b nowait:b arguments:t"),
    "queue.declare-ok": (50, 11, "queue:s messages:I consumers:I"),
    "queue.bind": (50, 20, "r:0 queue:s exchange:s routing-key:s nowait:b arguments:t"),
    "queue.bind-ok": (50, 21, ""),
    "queue.purge": (50, 30, "r:0 queue:s nowait:b"),
    "queue.purge-ok": (50, 31, "messages:I"),
    "queue.delete": (50, 40, "r:0 queue:s if-unused:b if-empty:b nowait:b"),
    "queue.delete-ok": (50, 41, "messages:I"),
    "queue.unbind": (50, 50, "r:0 queue:s exchange:s routing-key:s arguments:t"),
    "queue.unbind-ok": (50, 51, ""),
    "basic.qos": (60, 10, "prefetch-size:I prefetch-count:H global:b"),
    "basic.qos-ok": (60, 11, ""),
    "basic.consume": (60, 20, "r:0 queue:s tag:s no-local:b no-ack:b exclusive:b nowait:b arguments:t"),
    "basic.consume-ok": (60, 21, "tag:s"),
    "basic.cancel": (60, 30, "tag:s nowait:b"),
    "basic.cancel-ok": (60, 31, "tag:s"),
    "basic.publish": (60, 40, "r:0 exchange:s routing-key:s mandatory:b immediate:b"),
    "basic.return": (60, 50, "code:H text:s exchange:s routing-key:s"),
    "basic.deliver": (60, 60, "tag:s delivery:Q redelivered:b exchange:s routing-key:s"),
    "basic.get": (60, 70, "r:0 queue:s no-ack:b"),
    "basic.get-ok": (60, 71, "delivery:Q redelivered:b exchange:s routing-key:s messages:I"),
    "basic.get-empty": (60, 72, "reserved:_"),
    "basic.ack": (60, 80, "delivery:Q multiple:b"),
    "basic.reject": (60, 90, "delivery:Q requeue:b"),
    "basic.recover-async": (60, 100, "requeue:b"),
    "basic.recover": (60, 110, "requeue:b"),
    "basic.recover-ok": (60, 111, ""),
    "basic.nack": (60, 120, "delivery:Q multiple:b requeue:b"),
    "confirm.select": (85, 10, "nowait:b"),
    "confirm.select-ok": (85, 11, ""),
    "tx.select": (90, 10, ""),
    "tx.select-ok": (90, 11, ""),
    "tx.commit": (90, 20, ""),
    "tx.commit-ok": (90, 21, ""),
    "tx.rollback": (90, 30, ""),
    "tx.rollback-ok": (90, 31, ""),
}
SETUP = ("connection.tune-ok", "connection.start-ok")
NAMES = {(c, m): name for name, (c, m, _) in METHODS.items()}
SIZES = {"B": 1, "H": 2, "0": 2, "I": 4, "Q": 8}
# How long an answer that must come may take, and how long one that need not come is waited for: longer
# while a connection is set up, where brokers take their time to refuse.
ANSWER_S, QUIET_S, QUIET_AT_SETUP_S = 10.0, 0.3, 4.0


def fields(name):
    return [tuple(part.split(":")) for part in METHODS[name][2].split()]


def short(text):
    data = text.encode()
    return bytes([len(data)]) + data


def long(data):
    return struct.pack(">I", len(data)) + data


def value(text):
    """A table's value: i:5 integer, b:true boolean, s:text, l:a/b list of texts, v void."""
    kind, _, text = text.partition(":")
    if kind == "i":
        return b"l" + struct.pack(">q", int(text))
    if kind == "b":
        return b"t" + bytes([text == "true"])
    if kind == "l":
        items = b"".join(b"S" + long(item.encode()) for item in text.split("/"))
        return b"A" + long(items)
    if kind == "v":
        return b"V"
    return b"S" + long(text.encode())


def table(text):
    pairs = [pair.split("=", 1) for pair in text.split(",") if pair]
    return long(b"".join(short(key) + value(item) for key, item in pairs))


def encode(name, given):
    class_id, method_id, _ = METHODS[name]
    out, bits, bit = struct.pack(">HH", class_id, method_id), 0, 0
    for field, kind in fields(name) + [("", "end")]:
        if kind == "b":
            bits |= bool(given.get(field)) << bit
            bit += 1
            continue
        if bit:
            out, bits, bit = out + bytes([bits]), 0, 0
        text = given.get(field, "")
        if kind in ("s", "_"):
            out += short(text)
        elif kind == "S":
            out += long(text.encode().decode("unicode_escape").encode("latin1"))
        elif kind == "t":
            out += table(text)
        elif kind != "end":
            out += int(text or 0).to_bytes(SIZES[kind], "big")
    return out


def decode(payload):
    class_id, method_id = struct.unpack(">HH", payload[:4])
    name = NAMES.get((class_id, method_id), f"{class_id}.{method_id}")
    at, bit, shown = 4, 0, []
    for field, kind in fields(name) if name in METHODS else []:
        if kind == "b":
            if payload[at] >> bit & 1:
                shown.append(field)
            bit += 1
            continue
        if bit:
            at, bit = at + 1, 0
        if kind in ("s", "_"):
            size = payload[at]
            text = payload[at + 1:at + 1 + size].decode(errors="replace")
            at += 1 + size
            if kind == "s":
                # Names that the broker makes up differ each time.
                text = re.sub(r"amq\.(gen|ctag)-[\w-]+", r"amq.\1-X", text)
                text = re.sub(r"reply-to\.[^ ']+", "reply-to.X", text)
                shown.append(f"{field}={text}")
        elif kind in SIZES:
            number = int.from_bytes(payload[at:at + SIZES[kind]], "big")
            at += SIZES[kind]
            shown.append(f"{field}={number}")
        elif kind == "v":
            shown.append("0-9" if payload[at:at + 2] == b"\0\x09" else "another version")
        else:
            break
    return name, " ".join([name] + shown)


class Broker:
    def __init__(self, host, port):
        self.socket = socket.create_connection((host, port), ANSWER_S)
        self.received = b""
        self.is_over = False

    def frame(self, timeout):
        """(type, channel, payload), None if it stays quiet, or b"" at the end."""
        self.socket.settimeout(timeout)
        try:
            while True:
                if self.received[:4] == b"AMQP" and len(self.received) >= 8:
                    header, self.received = self.received[:8], self.received[8:]
                    return 0, 0, header
                if self.received[:4] != b"AMQP" and len(self.received) >= 7:
                    kind, channel, size = struct.unpack(">BHI", self.received[:7])
                    if len(self.received) >= size + 8:
                        payload = self.received[7:7 + size]
                        self.received = self.received[size + 8:]
                        return kind, channel, payload
                data = self.socket.recv(65536)
                if not data:
                    return b""
                self.received += data
        except socket.timeout:
            return None
        except ConnectionError:
            return b""

    def send(self, channel, name, given):
        if name == "raw":
            self.socket.sendall(bytes.fromhex(given["bytes"]))
        elif name == "header":
            flags, properties = 0, b""
            if "expiration" in given:
                flags, properties = flags | 1 << 8, properties + short(given["expiration"])
            if "user-id" in given:
                flags, properties = flags | 1 << 4, properties + short(given["user-id"])
            payload = struct.pack(">HHQH", int(given.get("class", 60)), 0, int(given["size"]), flags)
            self.write(2, channel, payload + properties)
        elif name == "body":
            self.write(3, channel, given["text"].encode())
        elif name == "heartbeat":
            self.write(8, channel, b"")
        elif name == "message":
            body = given.get("body", "").encode()
            self.write(1, channel, encode("basic.publish", given))
            self.send(channel, "header", {**given, "size": len(body)})
            if body:
                self.write(3, channel, body)
        else:
            self.write(1, channel, encode(name, given))

    def write(self, kind, channel, payload):
        self.socket.sendall(struct.pack(">BHI", kind, channel, len(payload)) + payload + b"\xce")

    def answers(self, channel, name):
        """What comes until the method is answered, or, for one without an answer, until it is quiet."""
        is_asked = name + "-ok" in METHODS and name != "connection.start"
        while True:
            quiet_s = QUIET_AT_SETUP_S if name in SETUP else QUIET_S
            frame = self.frame(ANSWER_S if is_asked else quiet_s)
            if frame is None:
                if is_asked:
                    yield f"nothing for {ANSWER_S:.0f} s"
                return
            if frame == b"":
                self.is_over = True
                yield "end of stream"
                return
            kind, on, payload = frame
            if kind == 0:
                yield f"protocol header {payload[4:].hex()}"
            elif kind == 1:
                answer, shown = decode(payload)
                is_setup_over = answer == "connection.tune"
                yield f"{on} {shown}"
                if answer == "connection.close":
                    self.is_over = True
                    self.write(1, 0, encode("connection.close-ok", {}))
                    return
                if answer == "channel.close":
                    self.write(1, on, encode("channel.close-ok", {}))
                if is_setup_over:
                    return
                if on == channel and answer == "basic.get-ok":
                    is_asked = False  # The message follows.
                elif on == channel and answer in (name + "-ok", "channel.close", "basic.get-empty"):
                    return
            elif kind == 2:
                yield f"{on} header size={struct.unpack('>Q', payload[4:12])[0]}"
            elif kind == 3:
                yield f"{on} body {payload.decode(errors='replace')}"
            else:
                yield f"{on} frame of type {kind}"

    def log_in(self):
        self.socket.sendall(b"AMQP\0\0\x09\x01")
        start = self.frame(ANSWER_S)
        assert start and start[0] == 1, start
        # The client says that it can be told of cancelled consumers and failed logins.
        names = ["consumer_cancel_notify", "authentication_failure_close", "basic.nack", "publisher_confirms"]
        table_of = long(b"".join(short(name) + b"t\x01" for name in names))
        properties = long(short("capabilities") + b"F" + table_of)
        payload = struct.pack(">HH", 10, 11) + properties + short("PLAIN") + long(b"\0guest\0guest") + short("en_US")
        self.write(1, 0, payload)
        tune = self.frame(ANSWER_S)
        assert tune and tune[0] == 1, tune
        self.write(1, 0, encode("connection.tune-ok", {"channel-max": "100", "frame-max": "131072"}))
        self.write(1, 0, encode("connection.open", {"vhost": "/"}))
        assert self.frame(ANSWER_S)
        self.write(1, 1, encode("channel.open", {}))
        assert self.frame(ANSWER_S)


def given(words):
    fields = {}
    for word in words:
        name, sign, text = word.partition("=")
        fields[name] = text.replace("%20", " ") if sign else True
    return fields


def conversations(text):
    name, lines = None, []
    for line in text.splitlines():
        if line and not line.startswith((" ", "#")):
            if name:
                yield name, lines
            name, lines = line, []
        elif line.startswith("  > "):
            lines.append(line)
    if name:
        yield name, lines


def play(host, port, name, lines):
    """A conversation that begins with `> 0` logs in by itself; others start on an open channel 1."""
    broker = Broker(host, port)
    others = {}
    if not lines[0].startswith("  > 0 "):
        broker.log_in()
    shown = [name]
    for line in lines:
        shown.append(line)
        words = line.split()[1:]
        on = broker
        if words[0] == "other":
            # A second connection, logged in, with channel 1 open.
            words = words[1:]
            if not others:
                others[0] = Broker(host, port)
                others[0].log_in()
            on = others[0]
        if on.is_over:
            continue  # The line stays in the file, so that another broker may get as far as that.
        try:
            on.send(int(words[0]), words[1], given(words[2:]))
        except ConnectionError:
            on.is_over = True
            shown.append("  < end of stream")
            continue
        shown += [f"  < {answer}" for answer in on.answers(int(words[0]), words[1])]
    broker.socket.close()
    for other in others.values():
        other.socket.close()
    return "\n".join(shown)


def main():
    host, port, names = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    with open(__file__.replace(".py", ".txt")) as file:
        text = file.read()
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        print(line)
    for name, lines in conversations(text):
        if not names or name in names:
            print("\n" + play(host, port, name, lines), flush=True)


main()
