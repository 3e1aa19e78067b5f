// A dialog over the page. The browser's own keeps the focus inside, and closes on Escape.

import type { ComponentChildren } from "preact";
import { useId, useLayoutEffect, useRef } from "preact/hooks";
import { words } from "../words";
import { addLayer, topLayer } from "./layers";
import { Notices } from "./notice";

interface Props {
  title: string;
  onClose: () => void;
  isWide?: boolean;
  children: ComponentChildren;
}

export function Dialog({ title, onClose, isWide = false, children }: Props) {
  const box = useRef<HTMLDialogElement>(null);
  const id = useId();
  // At once: whoever types on means the dialog.
  useLayoutEffect(() => {
    const dialog = box.current;
    const before = document.activeElement;
    dialog?.showModal();
    const remove = addLayer(id);
    return () => {
      remove();
      dialog?.close();
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
  const onCancel = (event: Event) => {
    event.preventDefault();
    onClose();
  };
  return (
    <dialog ref={box} class={isWide ? "wide" : ""} aria-labelledby={id} onCancel={onCancel}>
      <header>
        <h2 id={id}>{title}</h2>
        <button type="button" class="quiet" aria-label={words.close} onClick={onClose}>
          ✕
        </button>
      </header>
      <Notices isOnTop={topLayer.value === id} />
      {children}
    </dialog>
  );
}
