// Limits of a user or a vhost: set, changed, taken away.

import { useState } from "preact/hooks";
import { change } from "../../core/api";
import * as format from "../../core/format";
import { useAct } from "../../ui/act";
import { TextField } from "../../ui/fields";
import { Card } from "../../ui/parts";
import { words } from "../../words";

const TEXTS = words.limits;

interface Props {
  /** To which a limit's name is added. */
  path: string;
  limits: Record<string, number>;
  names: readonly string[];
  mayChange: boolean;
  title?: string;
}

export function LimitsOf({ path, limits, names, mayChange, title = words.pages.limits }: Props) {
  return (
    <Card title={title}>
      {names.map((name) => (
        <Limit
          key={name}
          path={`${path}/${name}`}
          name={name}
          value={limits[name]}
          mayChange={mayChange}
        />
      ))}
    </Card>
  );
}

interface LimitProps {
  path: string;
  name: string;
  value: number | undefined;
  mayChange: boolean;
}

function Limit({ path, name, value, mayChange }: LimitProps) {
  const [text, setText] = useState("");
  const { isBusy, run } = useAct();
  const submit = async (event: Event) => {
    event.preventDefault();
    if (await run(() => change("PUT", path, { value: Number(text) }), TEXTS.set(name))) setText("");
  };
  const clear = () => run(() => change("DELETE", path), TEXTS.cleared(name));
  return (
    <form class="row" onSubmit={(event) => void submit(event)}>
      <span class="limit">
        <strong>{name}</strong> {value === undefined ? TEXTS.none : format.count(value)}
      </span>
      {mayChange && (
        <>
          <TextField
            label={TEXTS.value}
            type="number"
            min={0}
            required
            value={text}
            onText={setText}
          />
          <button type="submit" disabled={isBusy}>
            {TEXTS.verb}
          </button>
          {value !== undefined && (
            <button type="button" class="danger" disabled={isBusy} onClick={() => void clear()}>
              {TEXTS.clear}
            </button>
          )}
        </>
      )}
    </form>
  );
}
