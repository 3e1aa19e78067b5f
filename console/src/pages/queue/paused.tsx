// Whether a consumer is paused, by whom, and the button that changes it.

import { change, path } from "../../core/api";
import * as format from "../../core/format";
import { role, session } from "../../core/session";
import { now } from "../../core/visible";
import type { Consumer } from "../../types";
import { useAct } from "../../ui/act";
import { Tag } from "../../ui/parts";
import { words } from "../../words";

const TEXTS = words.consumers;

export function ConsumerState({ of }: { of: Consumer }) {
  const { isBusy, run } = useAct();
  const { consumer_tag: tag, channel_details: channel, millrace } = of;
  const { paused = false, paused_by, paused_at } = millrace ?? {};
  const { administrates, changes } = role.value;
  const may = changes && (administrates || session.value?.user === channel.user);
  const to = path("millrace", "consumers", channel.name, tag, "pause");
  const pause = () =>
    run(() => change(paused ? "DELETE" : "PUT", to), TEXTS.pauseDone(tag, paused));
  return (
    <span class="chain">
      {paused && (
        <Tag tone="warn" title={format.time(paused_at)}>
          {words.queue.pausedBy(paused_by ?? "", format.ago(paused_at, now.value))}
        </Tag>
      )}
      {may && (
        <button
          type="button"
          class="small"
          disabled={isBusy}
          title={TEXTS.pauseTitle}
          onClick={() => void pause()}
        >
          {paused ? TEXTS.resume : TEXTS.pause}
        </button>
      )}
    </span>
  );
}
