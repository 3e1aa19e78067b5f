// Descriptors of Protobuf that somebody brought along. They stay in this browser: the node never sees them.

import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { Message } from "../types";
import { keptSignal } from "./kept";
import { bytesOf } from "./payload";
import type { Reader } from "./protobuf";

export interface DescriptorFile {
  name: string;
  base64: string;
  bytes: number;
  /** How many types of messages it has. */
  types: number;
}

/** What a browser keeps for a site is about 5 million letters, and these become a third longer. */
export const FILES_MAX = 10;
export const BYTES_MAX = 1024 * 1024;

/** Queues whose type is remembered: of more, those that were chosen first are forgotten. */
const CHOSEN_MAX = 200;

const isFile = (value: unknown): value is DescriptorFile => {
  const file = value as Partial<DescriptorFile> | null;
  return (
    typeof file?.name === "string" &&
    typeof file.base64 === "string" &&
    typeof file.bytes === "number" &&
    typeof file.types === "number"
  );
};

const isFiles = (value: unknown): value is DescriptorFile[] =>
  Array.isArray(value) && value.every(isFile);

export const files = keptSignal<DescriptorFile[]>("millrace.protobuf.files", [], isFiles);

type Chosen = readonly (readonly [queue: string, type: string])[];

const isChosen = (value: unknown): value is Chosen =>
  Array.isArray(value) &&
  value.every(
    (it) => Array.isArray(it) && it.length === 2 && it.every((part) => typeof part === "string"),
  );

/** The type of each queue that has one, the one that was chosen last at the end. */
const chosen = keptSignal<Chosen>("millrace.protobuf.types", [], isChosen);

const keyOf = (vhost: string, queue: string): string => JSON.stringify([vhost, queue]);

/** The type that was chosen for a queue. Empty: each message says its own. */
export function chosenType(vhost: string, queue: string): string {
  const key = keyOf(vhost, queue);
  return chosen.value.find(([it]) => it === key)?.[1] ?? "";
}

export function chooseType(vhost: string, queue: string, type: string): void {
  const key = keyOf(vhost, queue);
  const others = chosen.peek().filter(([it]) => it !== key);
  chosen.value = type === "" ? others : [...others, [key, type] as const].slice(-CHOSEN_MAX);
}

export type Refusal = "files" | "bytes";

/** Why a file is one too many, in place of one of the same name. */
export function refusalOf(
  kept: readonly DescriptorFile[],
  name: string,
  bytes: number,
): Refusal | undefined {
  const others = kept.filter((it) => it.name !== name);
  if (others.length >= FILES_MAX) return "files";
  const sum = others.reduce((all, it) => all + it.bytes, bytes);
  return sum > BYTES_MAX ? "bytes" : undefined;
}

/** Keeps a file, in place of one of the same name. */
export function keepFile(name: string, bytes: Uint8Array, types: number): void {
  const others = files.peek().filter((it) => it.name !== name);
  files.value = [...others, { name, base64: base64Of(bytes), bytes: bytes.length, types }];
}

export function removeFile(name: string): void {
  files.value = files.peek().filter((it) => it.name !== name);
}

/** So many arguments at most has a call. */
const CHUNK = 8192;

export function base64Of(bytes: Uint8Array): string {
  let letters = "";
  for (let at = 0; at < bytes.length; at += CHUNK)
    letters += String.fromCharCode(...bytes.subarray(at, at + CHUNK));
  return btoa(letters);
}

/** A type that the message names: in its property `type` or in a header, also with `type.googleapis.com/` before it. */
export function namedType(
  { type, headers = {} }: Message["properties"],
  has: (type: string) => boolean,
): string | undefined {
  const texts = [type, ...Object.values(headers)].filter((it) => typeof it === "string");
  return texts.map((it) => it.slice(it.lastIndexOf("/") + 1)).find(has);
}

const loaded = signal<{ of: DescriptorFile[]; reader: Reader | undefined } | undefined>(undefined);

async function load(of: DescriptorFile[]): Promise<void> {
  let reader: Reader | undefined;
  try {
    const { readerOf } = await import("./protobuf");
    reader = readerOf(of.map(({ base64 }) => bytesOf(base64, "base64")));
  } catch {
    // A newer node has no such part of this console any more, or somebody else wrote the files.
  }
  if (of === files.peek()) loaded.value = { of, reader };
}

export type Loading = "none" | "loading" | "failed" | Reader;

/** What reads by the files that are kept. */
export function useReader(): Loading {
  const now = files.value;
  const known = loaded.value;
  useEffect(() => {
    if (now.length > 0 && loaded.peek()?.of !== now) void load(now);
  }, [now]);
  if (now.length === 0) return "none";
  if (known?.of !== now) return "loading";
  return known.reader ?? "failed";
}
