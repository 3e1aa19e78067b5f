// Before something is destroyed: how much it is, a sample of it, and the name to be typed.

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { words } from "../words";
import { useAct } from "./act";
import { Dialog } from "./dialog";

interface Props {
  title: string;
  /** What has to be typed. */
  name: string;
  /** What the button says. */
  verb: string;
  /** What is told when it is done. */
  done: string;
  act: () => Promise<unknown>;
  onClose: () => void;
  onDone?: () => void;
  children: ComponentChildren;
}

export function Confirm({ title, name, verb, done, act, onClose, onDone, children }: Props) {
  const [typed, setTyped] = useState("");
  const { isBusy, run } = useAct();
  const submit = async (event: Event) => {
    event.preventDefault();
    if (typed !== name || !(await run(act, done))) return;
    onClose();
    onDone?.();
  };
  return (
    <Dialog title={title} onClose={onClose}>
      <form onSubmit={(event) => void submit(event)}>
        {children}
        <label class="field">
          <span>
            {words.confirm.type} <code>{name}</code>
          </span>
          <input
            autofocus
            autocomplete="off"
            spellcheck={false}
            value={typed}
            onInput={(it) => setTyped(it.currentTarget.value)}
          />
        </label>
        <footer>
          <button type="button" onClick={onClose}>
            {words.cancel}
          </button>
          <button type="submit" class="danger" disabled={typed !== name || isBusy}>
            {verb}
          </button>
        </footer>
      </form>
    </Dialog>
  );
}
