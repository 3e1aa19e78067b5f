// Groups are moved away from a node before it is stopped, and back; a node whose disk is lost is replaced. What would
// move is told before.

import { useEffect, useState } from "preact/hooks";
import { change, path } from "../../core/api";
import type { Node } from "../../types";
import type { Moves, Ordered } from "./told";
import { Confirm } from "../../ui/confirm";
import { TextField } from "../../ui/fields";
import { FormDialog, Opener } from "../../ui/form";
import { reasonOf } from "../../ui/notice";
import { Card } from "../../ui/parts";
import { words } from "../../words";

const TEXTS = words.cluster.orders;

/** How many groups are named. */
const SHOWN = 5;

export function Orders({ nodes }: { nodes: readonly Node[] }) {
  // How a new node is started is to be read, and copied: what was said last stays.
  const [said, setSaid] = useState<string | undefined>(undefined);
  return (
    <Card title={TEXTS.title}>
      <p>{TEXTS.text}</p>
      {nodes.map(({ name }) => (
        <div key={name} class="actions">
          <span>{name}</span>
          <Opener verb={TEXTS.drain} label={TEXTS.drainTitle(name)} class="small">
            {(close) => <Drain node={name} onSaid={setSaid} onClose={close} />}
          </Opener>
          <Opener verb={TEXTS.replace} label={TEXTS.replaceTitle(name)} class="small danger">
            {(close) => <Replace node={name} onSaid={setSaid} onClose={close} />}
          </Opener>
        </div>
      ))}
      <div class="actions">
        <Opener verb={TEXTS.rebalance}>
          {(close) => <Rebalance onSaid={setSaid} onClose={close} />}
        </Opener>
      </div>
      {said !== undefined && <p role="status">{said}</p>}
    </Card>
  );
}

interface Props {
  onSaid: (said: string) => void;
  onClose: () => void;
}

/** Gives the order. */
async function give(to: string, body: object, onSaid: Props["onSaid"]) {
  const { said } = await change<Ordered>("POST", to, body);
  onSaid(said);
}

function Drain({ node, onSaid, onClose }: Props & { node: string }) {
  const to = path("millrace", "nodes", node, "drain");
  return (
    <FormDialog
      title={TEXTS.drainTitle(node)}
      verb={TEXTS.drainVerb}
      act={() => give(to, {}, onSaid)}
      onClose={onClose}
    >
      <p>{TEXTS.drainText}</p>
      <Foreseen to={to} />
    </FormDialog>
  );
}

function Rebalance({ onSaid, onClose }: Props) {
  const to = path("millrace", "rebalance");
  return (
    <FormDialog
      title={TEXTS.rebalanceTitle}
      verb={TEXTS.rebalanceVerb}
      act={() => give(to, {}, onSaid)}
      onClose={onClose}
    >
      <Foreseen to={to} />
    </FormDialog>
  );
}

function Replace({ node, onSaid, onClose }: Props & { node: string }) {
  const [number, setNumber] = useState("");
  const to = path("millrace", "nodes", node, "replace");
  const by = /^[1-9]\d*$/.test(number) ? Number(number) : undefined;
  return (
    <Confirm
      title={TEXTS.replaceTitle(node)}
      name={node}
      verb={TEXTS.replaceVerb}
      done={TEXTS.replaced(node)}
      act={() => give(to, { by }, onSaid)}
      onClose={onClose}
    >
      <p>{TEXTS.replaceText}</p>
      <TextField
        label={TEXTS.by}
        hint={TEXTS.byHint}
        inputMode="numeric"
        required
        value={number}
        onText={setNumber}
      />
      {by !== undefined && <Foreseen key={by} to={to} more={{ by }} />}
    </Confirm>
  );
}

/** Which groups would move. */
function Foreseen({ to, more = {} }: { to: string; more?: object }) {
  const [told, setTold] = useState<Moves | string | undefined>(undefined);
  useEffect(() => {
    change<Moves>("POST", to, { ...more, dry_run: true }).then(setTold, (error: unknown) =>
      setTold(reasonOf(error)),
    );
  }, [to]);
  if (told === undefined) return <p role="status">{words.loading}</p>;
  if (typeof told === "string") return <p role="alert">{told}</p>;
  const { moves } = told;
  return (
    <div role="status">
      <p>{TEXTS.moves(moves.length)}</p>
      <ul class="sample">
        {moves.slice(0, SHOWN).map((it) => (
          <li key={it.group}>{TEXTS.move(it.group, it.nodes, it.nodes_then)}</li>
        ))}
      </ul>
      {moves.length > SHOWN && <p>{words.andMore(moves.length - SHOWN)}</p>}
    </div>
  );
}
