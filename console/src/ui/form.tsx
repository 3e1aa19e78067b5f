// Forms: what is written down is sent, what came of it is told, and a dialog closes when it worked.

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { words } from "../words";
import { useAct } from "./act";
import { Dialog } from "./dialog";

/** Names of the values that are texts. */
type Texts<Draft> = {
  [Name in keyof Draft]: Draft[Name] extends string ? Name : never;
}[keyof Draft];

/** What a field needs to show a value of a draft, and to change it. */
interface Bind<Draft> {
  text: (name: Texts<Draft>) => { value: string; onText: (text: string) => void };
  choice: <Name extends keyof Draft>(
    name: Name,
  ) => { value: Draft[Name]; onChoose: (value: Draft[Name]) => void };
}

/** What somebody is writing down: the values, a function that changes some of them, and what binds fields to them. */
export function useDraft<Draft>(
  first: Draft | (() => Draft),
): [Draft, (changes: Partial<Draft>) => void, Bind<Draft>] {
  const [draft, setDraft] = useState(first);
  const put = (changes: Partial<Draft>) => setDraft((before) => ({ ...before, ...changes }));
  const set = (name: keyof Draft, value: unknown) => put({ [name]: value } as Partial<Draft>);
  const bind: Bind<Draft> = {
    text: (name) => ({ value: draft[name] as string, onText: (text) => set(name, text) }),
    choice: (name) => ({ value: draft[name], onChoose: (value) => set(name, value) }),
  };
  return [draft, put, bind];
}

interface FormProps {
  /** What the button says. */
  verb: string;
  act: () => Promise<unknown>;
  /** What is told when it worked. */
  done?: string;
  onDone?: () => void;
  /** Whether what is written down can be sent. */
  isReady?: boolean;
  isDanger?: boolean;
  children: ComponentChildren;
}

function useForm({ act, done, onDone, isReady = true }: FormProps) {
  const { isBusy, run } = useAct();
  const submit = async (event: Event) => {
    event.preventDefault();
    if (isReady && (await run(act, done))) onDone?.();
  };
  return { isDisabled: isBusy || !isReady, onSubmit: (event: Event) => void submit(event) };
}

/** A form over the page. */
export function FormDialog(props: FormProps & { title: string; onClose: () => void }) {
  const { title, verb, onClose, onDone, isDanger = false, children } = props;
  const close = () => {
    onClose();
    onDone?.();
  };
  const { isDisabled, onSubmit } = useForm({ ...props, onDone: close });
  return (
    <Dialog title={title} onClose={onClose}>
      <form onSubmit={onSubmit}>
        {children}
        <footer>
          <button type="button" onClick={onClose}>
            {words.cancel}
          </button>
          <button type="submit" class={isDanger ? "danger" : "primary"} disabled={isDisabled}>
            {verb}
          </button>
        </footer>
      </form>
    </Dialog>
  );
}

/** A form of one row on the page. `more`: buttons beside the one that sends it. */
export function RowForm(props: FormProps & { more?: ComponentChildren }) {
  const { isDisabled, onSubmit } = useForm(props);
  return (
    <form class="row" onSubmit={onSubmit}>
      {props.children}
      <button type="submit" disabled={isDisabled}>
        {props.verb}
      </button>
      {props.more}
    </form>
  );
}

/** A form that is a part of the page, one field below the other. */
export function PageForm(props: FormProps) {
  const { isDisabled, onSubmit } = useForm(props);
  return (
    <form onSubmit={onSubmit}>
      {props.children}
      <button type="submit" class="primary" disabled={isDisabled}>
        {props.verb}
      </button>
    </form>
  );
}

interface ActButtonProps {
  verb: string;
  /** What it is called where several say the same. */
  label?: string;
  act: () => Promise<unknown>;
  done?: string;
  isDanger?: boolean;
}

/** A small button in a row that does something at once. */
export function ActButton({ verb, label, act, done, isDanger = false }: ActButtonProps) {
  const { isBusy, run } = useAct();
  return (
    <button
      type="button"
      class={isDanger ? "small danger" : "small"}
      disabled={isBusy}
      aria-label={label}
      onClick={() => void run(act, done)}
    >
      {verb}
    </button>
  );
}

interface OpenerProps {
  verb: string;
  /** What it is called where several say the same. */
  label?: string;
  class?: string;
  /** What the button opens. */
  children: (close: () => void) => ComponentChildren;
}

/** A button that opens a dialog. */
export function Opener({ verb, label, class: style = "", children }: OpenerProps) {
  const [isOpen, setOpen] = useState(false);
  return (
    <>
      <button type="button" class={style} aria-label={label} onClick={() => setOpen(true)}>
        {verb}
      </button>
      {isOpen && children(() => setOpen(false))}
    </>
  );
}
