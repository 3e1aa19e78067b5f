// Definitions as a file: written out, and brought in after saying what is in it.

import { useState } from "preact/hooks";
import { ask, change } from "../../core/api";
import { useAct } from "../../ui/act";
import { Confirm } from "../../ui/confirm";
import { Card } from "../../ui/parts";
import { save } from "../../ui/save";
import { jsonObject } from "../../ui/json";
import { tell } from "../../ui/notice";
import { words } from "../../words";

const TEXTS = words.cluster.definitions;

const PATH = "/definitions";

export function Definitions() {
  const { isBusy, run } = useAct();
  const [read, setRead] = useState<Record<string, unknown> | undefined>(undefined);
  const write = () =>
    run(async () => save("definitions.json", JSON.stringify(await ask<unknown>(PATH), null, 2)));
  const take = async (input: HTMLInputElement) => {
    const table = jsonObject((await input.files?.[0]?.text()) ?? "");
    input.value = "";
    if (table) setRead(table);
    else tell(words.errors.json, true);
  };
  return (
    <Card title={TEXTS.title}>
      <p>{TEXTS.text}</p>
      <div class="actions">
        <button type="button" disabled={isBusy} onClick={() => void write()}>
          {TEXTS.write}
        </button>
        <label class="inline">
          <span>{TEXTS.read}</span>
          <input type="file" accept=".json" onChange={(event) => void take(event.currentTarget)} />
        </label>
      </div>
      {read && (
        <Confirm
          title={TEXTS.confirm}
          name={TEXTS.typed}
          verb={TEXTS.verb}
          done={TEXTS.done}
          act={() => change("POST", PATH, read)}
          onClose={() => setRead(undefined)}
        >
          <p>{TEXTS.contents}</p>
          <ul>
            {Object.entries(read).map(
              ([name, part]) =>
                Array.isArray(part) && <li key={name}>{TEXTS.part(name, part.length)}</li>,
            )}
          </ul>
        </Confirm>
      )}
    </Card>
  );
}
