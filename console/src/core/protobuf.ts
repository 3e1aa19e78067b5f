// Reads Protobuf by descriptors that somebody brought along. This file and its library are loaded only where there are
// some: `descriptors.ts` does that.

import {
  type Registry,
  createFileRegistry,
  createRegistry,
  fromBinary,
  toJson,
} from "@bufbuild/protobuf";
import { FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";

/** A message as JSON, or why it is none of the type. */
export type Decoded =
  { json: unknown; unknownFields: number; fault?: undefined } | { fault: string };

export interface Reader {
  /** Full names of the types of messages, without those of Protobuf itself. */
  types: readonly string[];
  has: (type: string) => boolean;
  decode: (type: string, bytes: Uint8Array) => Decoded;
}

/** A file that is no set of descriptors, or not a whole one. */
export class NoDescriptors extends Error {}

const OWN = "google.protobuf.";

/** What `protoc --descriptor_set_out` has written. Throws `NoDescriptors`. */
function registryOf(bytes: Uint8Array): Registry {
  try {
    const set = fromBinary(FileDescriptorSetSchema, bytes);
    const isSet = set.file.length > 0 && set.$unknown === undefined;
    if (isSet && set.file.every(({ name }) => name !== "")) return createFileRegistry(set);
  } catch (error) {
    throw new NoDescriptors(error instanceof Error ? error.message : String(error));
  }
  throw new NoDescriptors("");
}

function typesOf(registry: Registry): string[] {
  return [...registry]
    .filter((it) => it.kind === "message" && !it.typeName.startsWith(OWN))
    .map((it) => it.typeName);
}

/** The names of the types in a file. Throws `NoDescriptors`. */
export const typesIn = (file: Uint8Array): string[] => typesOf(registryOf(file));

/** Reads by all of the files. */
export function readerOf(files: readonly Uint8Array[]): Reader {
  const registry = createRegistry(...files.map(registryOf));
  const decode = (type: string, bytes: Uint8Array): Decoded => {
    const schema = registry.getMessage(type);
    if (!schema) return { fault: "" };
    try {
      const message = fromBinary(schema, bytes);
      return { json: toJson(schema, message, { registry }), unknownFields: unknownIn(message, 0) };
    } catch (error) {
      return { fault: error instanceof Error ? error.message : String(error) };
    }
  };
  return {
    types: typesOf(registry).sort(),
    has: (type) => registry.getMessage(type) !== undefined,
    decode,
  };
}

/** Deeper than the library reads. */
const DEPTH_MAX = 128;

/** Fields that the type does not have, in the message and in those within it. */
function unknownIn(value: unknown, depth: number): number {
  if (typeof value !== "object" || value === null || value instanceof Uint8Array) return 0;
  if (depth > DEPTH_MAX) return 0;
  let found = 0;
  for (const [name, part] of Object.entries(value)) {
    if (name === "$unknown") found += Array.isArray(part) ? part.length : 0;
    else found += unknownIn(part, depth + 1);
  }
  return found;
}
