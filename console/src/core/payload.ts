// What is in a message, decoded as well as it can be: text, JSON, gzip, MessagePack, or bytes in hex.

import { decodeMessagePack } from "./messagepack";

export type Form = "json" | "text" | "messagepack" | "hex";

export interface Payload {
  bytes: Uint8Array;
  /** What it was before gzip was taken away, or undefined. */
  packedBytes: number | undefined;
}

export function bytesOf(payload: string, encoding: "string" | "base64"): Uint8Array {
  if (encoding === "string") return new TextEncoder().encode(payload);
  return Uint8Array.from(atob(payload), (letter) => letter.charCodeAt(0));
}

export const isGzip = (bytes: Uint8Array): boolean => bytes[0] === 0x1f && bytes[1] === 0x8b;

/** Takes gzip away. What is no whole gzip stays as it is. */
export async function unpacked(bytes: Uint8Array): Promise<Payload> {
  if (!isGzip(bytes)) return { bytes, packedBytes: undefined };
  try {
    const stream = new Blob([bytes as BlobPart])
      .stream()
      .pipeThrough(new DecompressionStream("gzip"));
    const whole = new Uint8Array(await new Response(stream).arrayBuffer());
    return { bytes: whole, packedBytes: bytes.length };
  } catch {
    return { bytes, packedBytes: undefined };
  }
}

export function textOf(bytes: Uint8Array): string | undefined {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return undefined;
  }
}

export function jsonOf(bytes: Uint8Array): string | undefined {
  const text = textOf(bytes);
  if (text === undefined || !/^\s*[[{"]/.test(text)) return undefined;
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return undefined;
  }
}

/** Only maps and arrays: nearly any bytes are some number in MessagePack. */
export function messagePackOf(bytes: Uint8Array): string | undefined {
  try {
    const value = decodeMessagePack(bytes);
    return typeof value === "object" && value !== null ? JSON.stringify(value, null, 2) : undefined;
  } catch {
    return undefined;
  }
}

const ROW = 16;

/** Offset, bytes and letters, as hexdump shows them. */
export function hexOf(bytes: Uint8Array): string {
  const rows = [];
  for (let at = 0; at < bytes.length; at += ROW) {
    const row = [...bytes.subarray(at, at + ROW)];
    const hex = row.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const letters = row.map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : "."));
    rows.push(
      `${at.toString(16).padStart(8, "0")}  ${hex.padEnd(ROW * 3 - 1)}  ${letters.join("")}`,
    );
  }
  return rows.join("\n");
}

export function shownAs(form: Form, bytes: Uint8Array): string | undefined {
  const shown = { json: jsonOf, text: textOf, messagepack: messagePackOf, hex: hexOf };
  return shown[form](bytes);
}

/** The forms that fit, the most telling first. */
export function formsOf(bytes: Uint8Array): Form[] {
  const forms: Form[] = ["json", "text", "messagepack", "hex"];
  const isText = textOf(bytes) !== undefined;
  return forms.filter((form) =>
    form === "messagepack" && isText ? false : shownAs(form, bytes) !== undefined,
  );
}
