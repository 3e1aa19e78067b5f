import { withAsked } from "../../core/api";
import * as format from "../../core/format";
import { useQuery } from "../../core/query";
import { role } from "../../core/session";
import type { Messages } from "../../types";
import { Age } from "../../ui/parts";
import { words } from "../../words";
import { messagesPath } from "./looked";

interface Props {
  queue: { vhost: string; name: string };
  /** How many messages are ready: of none, nothing is asked. */
  ready: number;
}

/** The age of the first ready message, which only who may look at messages can ask for. */
export function Oldest({ queue: { vhost, name }, ready }: Props) {
  const mayAsk = role.value.peeks && ready > 0;
  const to = withAsked(messagesPath(vhost, name), { state: "ready", count: 1, truncate: 0 });
  const { data } = useQuery<Messages>(mayAsk ? to : undefined, 10_000);
  const at = data?.items[0]?.enqueued_at;
  if (!mayAsk || at === undefined) return <>{format.NOTHING}</>;
  if (at === null) return <>{words.queue.oldestUnknown}</>;
  return <Age at={at} />;
}
