import { withAsked } from "../../core/api";
import * as format from "../../core/format";
import { useQuery } from "../../core/query";
import { role } from "../../core/session";
import type { Messages } from "../../types";
import { Age } from "../../ui/parts";
import { messagesPath } from "./looked";

interface Props {
  queue: { vhost: string; name: string };
  /** How many messages are ready: of none, nothing is asked. */
  ready: number;
  /** Since when the oldest is there at least, as its leader has seen. */
  at: number | null;
}

/** The age of the first ready message: exactly for who may look at messages, and at least for others. */
export function Oldest({ queue: { vhost, name }, ready, at: atLeast }: Props) {
  const mayAsk = role.value.peeks && ready > 0;
  const to = withAsked(messagesPath(vhost, name), { state: "ready", count: 1, truncate: 0 });
  const { data } = useQuery<Messages>(mayAsk ? to : undefined, 10_000);
  if (ready === 0) return <>{format.NOTHING}</>;
  return <Age at={data?.items[0]?.enqueued_at ?? atLeast} />;
}
