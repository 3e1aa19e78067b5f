// Reads MessagePack, as its specification of 2013 says it. Numbers beyond what JSON can say become text.

class Reader {
  private at = 0;
  private readonly view: DataView;

  constructor(private readonly bytes: Uint8Array) {
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }

  get isAtEnd(): boolean {
    return this.at === this.bytes.length;
  }

  /** A whole number of so many bytes. */
  private unsigned(size: 1 | 2 | 4): number {
    const at = this.move(size);
    if (size === 1) return this.view.getUint8(at);
    return size === 2 ? this.view.getUint16(at) : this.view.getUint32(at);
  }

  private move(size: number): number {
    const at = this.at;
    this.at += size;
    if (this.at > this.bytes.length) throw new RangeError("the bytes end within a value");
    return at;
  }

  private raw(size: number): Uint8Array {
    const at = this.move(size);
    return this.bytes.subarray(at, at + size);
  }

  private text(size: number): string {
    return new TextDecoder("utf-8", { fatal: true }).decode(this.raw(size));
  }

  private binary(size: number): string {
    return [...this.raw(size)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  }

  private extension(size: number): unknown {
    const type = this.view.getInt8(this.move(1));
    return { extension: type, bytes: this.binary(size) };
  }

  private array(count: number, depth: number): unknown[] {
    return Array.from({ length: this.bounded(count) }, () => this.value(depth + 1));
  }

  private map(count: number, depth: number): Record<string, unknown> {
    const entries: [string, unknown][] = [];
    for (let left = this.bounded(count); left > 0; left -= 1) {
      const key = this.value(depth + 1);
      entries.push([typeof key === "string" ? key : JSON.stringify(key), this.value(depth + 1)]);
    }
    return Object.fromEntries(entries);
  }

  /** Each element takes a byte at least: a larger count is no count. */
  private bounded(count: number): number {
    if (count > this.bytes.length - this.at) throw new RangeError("more elements than bytes");
    return count;
  }

  value(depth: number): unknown {
    if (depth > DEPTH_MAX) throw new RangeError("too deep");
    const first = this.unsigned(1);
    if (first < 0x80) return first;
    if (first < 0x90) return this.map(first & 0x0f, depth);
    if (first < 0xa0) return this.array(first & 0x0f, depth);
    if (first < 0xc0) return this.text(first & 0x1f);
    if (first >= 0xe0) return first - 0x100;
    return this.marked(first, depth);
  }

  private marked(mark: number, depth: number): unknown {
    switch (mark) {
      case 0xc0:
        return null;
      case 0xc2:
        return false;
      case 0xc3:
        return true;
      case 0xc4:
        return this.binary(this.unsigned(1));
      case 0xc5:
        return this.binary(this.unsigned(2));
      case 0xc6:
        return this.binary(this.unsigned(4));
      case 0xc7:
        return this.extension(this.unsigned(1));
      case 0xc8:
        return this.extension(this.unsigned(2));
      case 0xc9:
        return this.extension(this.unsigned(4));
      case 0xca:
        return this.view.getFloat32(this.move(4));
      case 0xcb:
        return this.view.getFloat64(this.move(8));
      case 0xcc:
        return this.unsigned(1);
      case 0xcd:
        return this.unsigned(2);
      case 0xce:
        return this.unsigned(4);
      case 0xcf:
        return whole(this.view.getBigUint64(this.move(8)));
      case 0xd0:
        return this.view.getInt8(this.move(1));
      case 0xd1:
        return this.view.getInt16(this.move(2));
      case 0xd2:
        return this.view.getInt32(this.move(4));
      case 0xd3:
        return whole(this.view.getBigInt64(this.move(8)));
      case 0xd4:
        return this.extension(1);
      case 0xd5:
        return this.extension(2);
      case 0xd6:
        return this.extension(4);
      case 0xd7:
        return this.extension(8);
      case 0xd8:
        return this.extension(16);
      case 0xd9:
        return this.text(this.unsigned(1));
      case 0xda:
        return this.text(this.unsigned(2));
      case 0xdb:
        return this.text(this.unsigned(4));
      case 0xdc:
        return this.array(this.unsigned(2), depth);
      case 0xdd:
        return this.array(this.unsigned(4), depth);
      case 0xde:
        return this.map(this.unsigned(2), depth);
      case 0xdf:
        return this.map(this.unsigned(4), depth);
      default:
        throw new RangeError(`no value begins with ${mark}`);
    }
  }
}

const DEPTH_MAX = 64;

function whole(value: bigint): number | string {
  const number = Number(value);
  return Number.isSafeInteger(number) ? number : value.toString();
}

/** The one value that the bytes are. Throws if they are none, or more than one. */
export function decodeMessagePack(bytes: Uint8Array): unknown {
  const reader = new Reader(bytes);
  const value = reader.value(0);
  if (!reader.isAtEnd) throw new RangeError("bytes are left");
  return value;
}
