// Before something is destroyed: how much it is, a sample of it, and the name to be typed.

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { words } from "../words";
import { FormDialog } from "./form";

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

export function Confirm({ name, children, ...form }: Props) {
  const [typed, setTyped] = useState("");
  return (
    <FormDialog {...form} isReady={typed === name} isDanger>
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
    </FormDialog>
  );
}
