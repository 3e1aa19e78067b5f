// As much of an AMQP 0-9-1 client as the tasks need: it publishes, and it consumes without acknowledging.

import { connect as dial } from "node:net";

const END = 206;

const short = (text) => Buffer.concat([Buffer.from([text.length]), Buffer.from(text)]);
const long = (bytes) => {
  const size = Buffer.alloc(4);
  size.writeUInt32BE(bytes.length);
  return Buffer.concat([size, bytes]);
};
const two = (value) => Buffer.from([value >> 8, value & 255]);
const four = (value) =>
  Buffer.from([value >>> 24, (value >>> 16) & 255, (value >>> 8) & 255, value & 255]);

function frame(type, channel, payload) {
  return Buffer.concat([
    Buffer.from([type]),
    two(channel),
    four(payload.length),
    payload,
    Buffer.from([END]),
  ]);
}

const method = (channel, of, name, ...rest) =>
  frame(1, channel, Buffer.concat([two(of), two(name), ...rest]));

/** A table with the name of the connection alone. */
function nameTable(name) {
  const table = Buffer.concat([
    short("connection_name"),
    Buffer.from("S"),
    long(Buffer.from(name)),
  ]);
  return long(table);
}

/** A message as three frames on channel 1. */
export function message(exchange, key, body, seconds) {
  const bytes = Buffer.from(body);
  // Persistent, and with an expiration where one is said.
  const expiration = seconds === undefined ? Buffer.alloc(0) : short(String(seconds * 1000));
  const flags = seconds === undefined ? 0x1000 : 0x1100;
  const header = Buffer.concat([
    two(60),
    two(0),
    four(0),
    four(bytes.length),
    two(flags),
    Buffer.from([2]),
    expiration,
  ]);
  return Buffer.concat([
    method(1, 60, 40, two(0), short(exchange), short(key), Buffer.from([0])),
    frame(2, 1, header),
    frame(3, 1, bytes),
  ]);
}

/** Connects, and opens channel 1. `name` is what management consoles show. */
export async function connect({ host, port, vhost, user, password, name }) {
  const socket = dial(port, host);
  let [buffer, waiting] = [Buffer.alloc(0), undefined];
  socket.on("data", (data) => {
    buffer = Buffer.concat([buffer, data]);
    while (buffer.length >= 7 && buffer.length >= 8 + buffer.readUInt32BE(3)) {
      const size = buffer.readUInt32BE(3);
      const [type, payload] = [buffer[0], buffer.subarray(7, 7 + size)];
      buffer = buffer.subarray(8 + size);
      if (
        type === 1 &&
        waiting?.of === payload.readUInt16BE(0) &&
        waiting.name === payload.readUInt16BE(2)
      ) {
        const { resolve } = waiting;
        waiting = undefined;
        resolve();
      }
    }
  });
  socket.on("error", () => undefined);
  const until = (of, name) => new Promise((resolve) => (waiting = { of, name, resolve }));
  const call = async (sent, of, name) => {
    const answer = until(of, name);
    socket.write(sent);
    await answer;
  };
  const secret = Buffer.from(`\0${user}\0${password}`);
  await call(Buffer.from("AMQP\0\0\x09\x01", "latin1"), 10, 10);
  await call(
    method(0, 10, 11, nameTable(name), short("PLAIN"), long(secret), short("en_US")),
    10,
    30,
  );
  socket.write(method(0, 10, 31, two(16), four(131_072), two(0)));
  await call(method(0, 10, 40, short(vhost), short(""), Buffer.from([0])), 10, 41);
  await call(method(1, 20, 10, short("")), 20, 11);
  return {
    /** Takes up to `prefetch` messages, and holds them. */
    async hold(queue, prefetch, tag) {
      await call(method(1, 60, 10, four(0), two(prefetch), Buffer.from([0])), 60, 11);
      const rest = [short(tag), Buffer.from([0]), four(0)];
      await call(method(1, 60, 20, two(0), short(queue), ...rest), 60, 21);
    },
    /** Sends bytes, no faster than the broker takes them. */
    async send(bytes) {
      if (!socket.write(bytes)) await new Promise((resolve) => socket.once("drain", resolve));
    },
    close: () => socket.destroy(),
    get isClosed() {
      return socket.destroyed;
    },
  };
}
