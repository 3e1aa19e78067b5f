// Limits of a user or a vhost: set, changed, taken away.

import { useState } from "preact/hooks";
import { change, path } from "../../core/api";
import * as format from "../../core/format";
import { TextField } from "../../ui/fields";
import { ActButton, RowForm } from "../../ui/form";
import { Card } from "../../ui/parts";
import { words } from "../../words";

const TEXTS = words.limits;

interface Props {
  /** Parts of the path to which a limit's name is added. */
  at: readonly string[];
  limits: Record<string, number>;
  names: readonly string[];
  mayChange: boolean;
  title?: string;
}

export function LimitsOf({ at, limits, names, mayChange, title = words.pages.limits }: Props) {
  return (
    <Card title={title}>
      {names.map((name) => (
        <Limit
          key={name}
          path={path(...at, name)}
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

function Limit({ path: to, name, value, mayChange }: LimitProps) {
  const [text, setText] = useState("");
  const stands = (
    <span class="limit">
      <strong>{name}</strong> {value === undefined ? TEXTS.none : format.count(value)}
    </span>
  );
  if (!mayChange) return <div class="row">{stands}</div>;
  return (
    <RowForm
      verb={TEXTS.verb}
      act={() => change("PUT", to, { value: Number(text) })}
      done={TEXTS.set(name)}
      onDone={() => setText("")}
      more={
        value !== undefined && (
          <ActButton
            verb={TEXTS.clear}
            act={() => change("DELETE", to)}
            done={TEXTS.cleared(name)}
            isDanger
          />
        )
      }
    >
      {stands}
      <TextField label={TEXTS.value} type="number" min={0} required value={text} onText={setText} />
    </RowForm>
  );
}
