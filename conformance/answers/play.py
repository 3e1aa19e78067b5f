"""Plays the conversations of a file in conformance/answers with a broker and prints what it answered.

usage: play.py HOST PORT FILE [NAME...]

A conversation is a name at the left margin and lines `> CHANNEL METHOD FIELD=VALUE...` below it, what the
client sends; the lines `< ...` that follow are what RabbitMQ answered. This prints the same file with the
answers of the broker it was given. Nothing here but the standard library: a client library would not send
most of this.

Not methods, but written like them: `message` (basic.publish with its header and body), `header`, `body`,
`heartbeat`, `raw`, and `wait ms=N`, which shows what comes in that time. The word `at-once` at the end goes
on to the next line without waiting for anything.

A busy machine is not to be taken for another answer. What RabbitMQ answered is in the file, so as many lines
are waited for before quiet counts as the end; and right behind a line that only waited for quiet, what only
looks (`basic.get` that finds nothing, `queue.declare` with `passive`) looks again until it sees what RabbitMQ
showed.
"""
import socket
import struct
import sys
import time

from wire import METHODS, decode, decode_header, encode, encode_header, long, short

SETUP = ("connection.tune-ok", "connection.start-ok")
# How long an answer that must come may take, and how long one that need not come is waited for: longer
# while a connection is set up, where brokers take their time to refuse.
ANSWER_S, QUIET_S, QUIET_AT_SETUP_S = 10.0, 0.3, 4.0
# How much longer is waited for what RabbitMQ answered, and how often is looked again.
LATE_S, AGAIN_S = 5.0, 0.1
# How long a broker may take to say goodbye; some conversations leave it unable to.
LEAVE_S = 2.0


class Broker:
    def __init__(self, host, port):
        self.socket = socket.create_connection((host, port), ANSWER_S)
        self.received = b""
        self.is_over = False
        self.is_logged_in = False

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
            self.write(2, channel, encode_header(given))
        elif name == "body":
            self.write(3, channel, given["text"].encode())
        elif name == "heartbeat":
            self.write(8, channel, b"")
        elif name == "wait":
            pass
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

    def answers(self, channel, name, given, expected=0):
        """What comes until the method is answered, or, for one without an answer, until it is quiet and as many
        lines have come as are expected."""
        must_come = is_asked(name, given)
        begin = time.monotonic()
        until, latest = begin + int(given.get("ms", 0)) / 1000, begin + LATE_S
        while True:
            quiet_s = QUIET_AT_SETUP_S if name in SETUP else QUIET_S
            if name == "wait":
                quiet_s = max(0.001, until - time.monotonic())
            if expected > 0:
                quiet_s = max(quiet_s, latest - time.monotonic())
            expected -= 1
            frame = self.frame(ANSWER_S if must_come else quiet_s)
            if frame is None:
                if must_come:
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
                    must_come = False  # The message follows.
                elif on == channel and answer in (name + "-ok", "channel.close", "basic.get-empty"):
                    return
            elif kind == 2:
                yield f"{on} {decode_header(payload)}"
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
        self.is_logged_in = True

    def leave(self):
        """In good order, so that its exclusive queues are gone before the next conversation begins."""
        try:
            if self.is_logged_in and not self.is_over:
                self.write(1, 0, encode("connection.close", {"code": "200", "text": "bye"}))
                close_ok = METHODS["connection.close-ok"][:2]
                while frame := self.frame(LEAVE_S):
                    if frame[0] == 1 and struct.unpack(">HH", frame[2][:4]) == close_ok:
                        break
        except ConnectionError:
            pass
        self.socket.close()


def given(words):
    fields = {}
    for word in words:
        name, sign, text = word.partition("=")
        fields[name] = text.replace("%20", " ") if sign else True
    return fields


def conversations(text):
    """Their names, and their lines to send, each with what RabbitMQ answered."""
    name, lines = None, []
    for line in text.splitlines():
        if line and not line.startswith((" ", "#")):
            if name:
                yield name, lines
            name, lines = line, []
        elif line.startswith("  > "):
            lines.append((line, []))
        elif line.startswith("  < "):
            lines[-1][1].append(line[4:])
    if name:
        yield name, lines


def is_asked(method, fields):
    """Whether the method has an answer."""
    return method + "-ok" in METHODS and method != "connection.start" and "nowait" not in fields


def only_looks(method, fields):
    return method == "basic.get" or (method == "queue.declare" and "passive" in fields)


def is_another_look_due(method, answers, expected):
    """Whether the answers show less than RabbitMQ's, and looking changed nothing."""
    shown = [method + "-ok" in "".join(lines[:1]) for lines in (answers, expected)]
    if method == "basic.get":
        return shown == [False, True] and "basic.get-empty" in answers[0]
    return shown == [True, True] and answers != expected


def play(host, port, name, lines):
    """A conversation that begins with `> 0` logs in by itself; others start on an open channel 1."""
    broker = Broker(host, port)
    others = {}
    if not lines[0][0].startswith("  > 0 "):
        broker.log_in()
    shown = [name]
    has_waited = False
    for line, expected in lines:
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
        is_at_once = words[-1] == "at-once"
        channel, method, fields = int(words[0]), words[1], given(words[2:len(words) - is_at_once])
        if not only_looks(method, fields):
            has_waited = not is_at_once and not is_asked(method, fields)
        latest = time.monotonic() + LATE_S
        try:
            on.send(channel, method, fields)
            answers = [] if is_at_once else list(on.answers(channel, method, fields, len(expected)))
            while (
                has_waited
                and only_looks(method, fields)
                and is_another_look_due(method, answers, expected)
                and time.monotonic() < latest
            ):
                time.sleep(AGAIN_S)
                on.send(channel, method, fields)
                answers = list(on.answers(channel, method, fields, len(expected)))
        except ConnectionError:
            on.is_over = True
            answers = ["end of stream"]
        shown += [f"  < {answer}" for answer in answers]
    for connection in [broker, *others.values()]:
        connection.leave()
    clean_up(host, port, [line for line, _ in lines])
    return "\n".join(shown)


def clean_up(host, port, lines):
    """Deletes what a conversation may have left: one that went wrong is not to spoil those behind it."""
    left = set()
    for line in lines:
        words = line.split()
        method = words[3] if words[1] == "other" else words[2]
        if method.endswith(".declare") and "passive" not in words and "exclusive" not in words:
            kind = method.split(".")[0]
            left.add((kind, given(words).get(kind, "")))
    names = sorted((kind, name) for kind, name in left if name and not name.startswith("amq."))
    if not names:
        return
    broker = Broker(host, port)
    broker.log_in()
    for channel, (kind, name) in enumerate(names, 2):
        broker.send(channel, "channel.open", {})
        list(broker.answers(channel, "channel.open", {}))
        broker.send(channel, kind + ".delete", {kind: name})
        list(broker.answers(channel, kind + ".delete", {}))
    broker.leave()


def main():
    host, port, path, names = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4:]
    with open(path) as file:
        text = file.read()
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        print(line)
    for name, lines in conversations(text):
        if not names or name in names:
            print("\n" + play(host, port, name, lines), flush=True)


if __name__ == "__main__":
    main()
