// What the tables of dead letters have in common.

import * as format from "../../core/format";
import { now } from "../../core/visible";
import { Tag } from "../../ui/parts";
import { words } from "../../words";
import { reasonText } from "./filter";

export function Reason({ reason }: { reason: string | null }) {
  return <Tag title={reason ?? ""}>{reasonText(reason)}</Tag>;
}

/** How long ago it was. */
export function Ago({ at }: { at: number | null }) {
  return (
    <span title={format.time(at)}>
      {at === null ? format.NOTHING : words.dead.ago(format.ago(at, now.value))}
    </span>
  );
}
