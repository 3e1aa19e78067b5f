// Goes to whatever one types: a page, a saved view, a queue.

import { useState } from "preact/hooks";
import { views } from "../core/kept";
import { isPaletteOpen } from "../core/keys";
import { go } from "../core/place";
import { allowedPages } from "../core/sitemap";
import { queues } from "../live/stream";
import { queueHref } from "../ui/parts";
import { Dialog } from "../ui/dialog";
import { matches } from "../ui/search";
import { words } from "../words";

interface Target {
  text: string;
  kind: string;
  to: string;
}

const SHOWN_MAX = 12;

function found(text: string): Target[] {
  const { kinds } = words.palette;
  const list: Target[] = [];
  const add = (target: Target, ...more: string[]) => {
    if (list.length < SHOWN_MAX && matches(text, target.text, ...more)) list.push(target);
  };
  for (const page of allowedPages.value) add({ text: page.title, kind: kinds.page, to: page.path });
  for (const view of views.value) add({ text: view.name, kind: kinds.view, to: view.to });
  if (text === "") return list;
  for (const { vhost, name } of queues().rows.values()) {
    if (list.length === SHOWN_MAX) break;
    add({ text: name, kind: kinds.queue(vhost), to: queueHref(vhost, name) }, vhost);
  }
  return list;
}

export function Palette() {
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const targets = found(text);
  const close = () => (isPaletteOpen.value = false);
  const open = (target: Target | undefined) => {
    if (!target) return;
    close();
    go(target.to);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step !== undefined) {
      event.preventDefault();
      setAt(Math.max(0, Math.min(targets.length - 1, at + step)));
    } else if (event.key === "Enter") {
      event.preventDefault();
      open(targets[at]);
    }
  };
  return (
    <Dialog title={words.palette.title} onClose={close}>
      <input
        autofocus
        type="search"
        role="combobox"
        aria-expanded="true"
        aria-controls="palette-list"
        aria-activedescendant={targets[at] ? `palette-${at}` : undefined}
        aria-label={words.palette.label}
        value={text}
        onInput={(event) => {
          setText(event.currentTarget.value);
          setAt(0);
        }}
        onKeyDown={onKeyDown}
      />
      <ul id="palette-list" role="listbox" class="palette" aria-label={words.palette.title}>
        {targets.map((target, index) => (
          <li
            key={target.to}
            id={`palette-${index}`}
            role="option"
            aria-selected={index === at}
            onClick={() => open(target)}
          >
            {target.text} <span class="dim">{target.kind}</span>
          </li>
        ))}
      </ul>
      {targets.length === 0 && <p>{words.palette.nothing}</p>}
    </Dialog>
  );
}
