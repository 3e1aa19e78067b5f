"""AMQP 0-9-1 as bytes and as words: methods, properties and tables of the conversations.

In: a table's values are i:5 integer of 64 bits, I:5 of 32, h:5 of 16, B:5 of 8, O:5 of 8 without a sign,
T:5 timestamp, b:true boolean, s:text, d:1.5 double, f:1.5 float, l:a/b list of texts, n:1/2 list of integers,
t: empty table, v: void. Out: each value with its type.
"""
import re
import struct

# Fields by letter: s short string, S long string, b bit, B octet, H short, I long, Q long long, t table,
# v the version in connection.start, _ a reserved short string, 0 a reserved short, L a reserved long string.
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
NAMES = {(c, m): name for name, (c, m, _) in METHODS.items()}
SIZES = {"B": 1, "H": 2, "0": 2, "I": 4, "Q": 8}
# In the order of the flags, from the highest bit.
PROPERTIES = (
    "content-type:s content-encoding:s headers:t delivery-mode:B priority:B correlation-id:s reply-to:s "
    "expiration:s message-id:s timestamp:Q type:s user-id:s app-id:s cluster-id:s"
).split()


def fields(name):
    return [tuple(part.split(":")) for part in METHODS[name][2].split()]


def short(text):
    data = text.encode()
    return bytes([len(data)]) + data


def long(data):
    return struct.pack(">I", len(data)) + data


def value(text):
    kind, _, text = text.partition(":")
    if kind == "i":
        return b"l" + struct.pack(">q", int(text))
    if kind == "I":
        return b"I" + struct.pack(">i", int(text))
    if kind == "h":
        return b"s" + struct.pack(">h", int(text))
    if kind == "B":
        return b"b" + struct.pack(">b", int(text))
    if kind == "O":
        return b"B" + struct.pack(">B", int(text))
    if kind == "T":
        return b"T" + struct.pack(">Q", int(text))
    if kind == "f":
        return b"f" + struct.pack(">f", float(text))
    if kind == "d":
        return b"d" + struct.pack(">d", float(text))
    if kind == "b":
        return b"t" + bytes([text == "true"])
    if kind == "l":
        return b"A" + long(b"".join(b"S" + long(item.encode()) for item in text.split("/")))
    if kind == "n":
        return b"A" + long(b"".join(b"l" + struct.pack(">q", int(item)) for item in text.split("/")))
    if kind == "t":
        return b"F" + long(b"")
    if kind == "v":
        return b"V"
    return b"S" + long(text.encode())


def table(text):
    pairs = [pair.split("=", 1) for pair in text.split(",") if pair]
    return long(b"".join(short(key) + value(item) for key, item in pairs))


# Type letters of tables: how RabbitMQ calls the type, and its format if its size is fixed.
KINDS = {
    b"t": ("bool", ">?"), b"b": ("byte", ">b"), b"B": ("unsignedbyte", ">B"), b"s": ("short", ">h"),
    b"u": ("unsignedshort", ">H"), b"I": ("signedint", ">i"), b"i": ("unsignedint", ">I"), b"l": ("long", ">q"),
    b"f": ("float", ">f"), b"d": ("double", ">d"), b"T": ("timestamp", ">Q"), b"D": ("decimal", ">BI"),
    b"V": ("void", ">"),
}


def shown_value(data, at):
    """A value as words, and where the next begins. The time of day differs each time."""
    kind, at = data[at:at + 1], at + 1
    if kind in KINDS:
        name, form = KINDS[kind]
        end = at + struct.calcsize(form)
        values = struct.unpack(form, data[at:end])
        if name == "timestamp":
            return "timestamp", end
        return ":".join([name] + [str(value).lower() for value in values]), end
    end = at + 4 + int.from_bytes(data[at:at + 4], "big")
    inside = data[at + 4:end]
    if kind == b"F":
        return shown_table(inside), end
    if kind == b"A":
        items, at = [], 0
        while at < len(inside):
            item, at = shown_value(inside, at)
            items.append(item)
        return "[" + " ".join(items) + "]", end
    return {b"S": "longstr", b"x": "binary"}.get(kind, "?") + ":" + inside.decode(errors="replace"), end


def shown_table(data):
    pairs, at = [], 0
    while at < len(data):
        key = data[at + 1:at + 1 + data[at]].decode(errors="replace")
        shown, at = shown_value(data, at + 1 + data[at])
        pairs.append(f"{key}={shown}")
    return "{" + " ".join(pairs) + "}"


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
    if name == "basic.nack":
        # Whether it is said for several at once is the broker's choice; `requeue` means nothing to a publisher.
        shown = shown[:1]
    return name, " ".join([name] + shown)


def encode_header(given):
    """A content header; `priority=` is a property here, as are all names in PROPERTIES."""
    flags, properties = 0, b""
    for bit, (name, kind) in enumerate(part.split(":") for part in PROPERTIES):
        text = given.get(name)
        if text is None:
            continue
        flags |= 1 << (15 - bit)
        if kind == "s":
            properties += short(text)
        elif kind == "t":
            properties += table(text)
        else:
            properties += int(text).to_bytes(SIZES[kind], "big")
    head = struct.pack(">HHQH", int(given.get("class", 60)), 0, int(given["size"]), flags)
    return head + properties


def decode_header(payload):
    size, flags = struct.unpack(">QH", payload[4:14])
    at, shown = 14, [f"size={size}"]
    for bit, (name, kind) in enumerate(part.split(":") for part in PROPERTIES):
        if not flags >> (15 - bit) & 1:
            continue
        if kind == "s":
            end = at + 1 + payload[at]
            text = payload[at + 1:end].decode(errors="replace")
        elif kind == "t":
            end = at + 4 + int.from_bytes(payload[at:at + 4], "big")
            text = shown_table(payload[at + 4:end])
        else:
            end = at + SIZES[kind]
            text = int.from_bytes(payload[at:end], "big")
        shown.append(f"{name}={text}")
        at = end
    return " ".join(["header"] + shown)
