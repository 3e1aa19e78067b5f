// Small parts that most pages have.

import { type ComponentChildren, Fragment } from "preact";
import { useEffect, useState } from "preact/hooks";
import * as format from "../core/format";
import { href } from "../core/place";
import type { Query } from "../core/query";
import { now } from "../core/visible";
import { words } from "../words";
import { reasonOf } from "./notice";

interface HeadProps {
  title: string;
  children?: ComponentChildren;
}

/** The title of a page, with what can be done there. */
export function Head({ title, children }: HeadProps) {
  useEffect(() => {
    document.title = words.pageTitle(title);
  }, [title]);
  return (
    <div class="head">
      <h1>{title}</h1>
      <div class="actions">{children}</div>
    </div>
  );
}

interface CardProps {
  title?: ComponentChildren;
  aside?: ComponentChildren;
  children: ComponentChildren;
}

export function Card({ title, aside, children }: CardProps) {
  return (
    <section class="card">
      {title !== undefined && (
        <div class="card-head">
          <h2>{title}</h2>
          <div class="actions">{aside}</div>
        </div>
      )}
      {children}
    </section>
  );
}

interface FailureProps {
  /** What cannot be shown. */
  what?: string | undefined;
  error: unknown;
  reload?: () => void;
}

/** Why something cannot be shown, and a button that tries again. */
export function Failure({ what, error, reload }: FailureProps) {
  return (
    <div class="failure" role="alert">
      <p>
        {what !== undefined && <strong>{words.errors.cannotShow(what)}</strong>} {reasonOf(error)}
      </p>
      {reload && (
        <button type="button" onClick={reload}>
          {words.again}
        </button>
      )}
    </div>
  );
}

interface LoadedProps<Answer> {
  of: Query<Answer>;
  /** What it is, for the case that it cannot be shown. */
  what: string;
  children: (data: Answer) => ComponentChildren;
}

/** What a query told, or that it is not there yet, or why not. What is known stays while the node does not answer. */
export function Loaded<Answer>({ of, what, children }: LoadedProps<Answer>) {
  const { data, refused, reload } = of;
  const failure = refused && <Failure what={what} error={refused} reload={reload} />;
  if (data === undefined) return failure ?? <Loading />;
  return (
    <>
      {failure}
      {children(data)}
    </>
  );
}

export function Loading() {
  return <p class="loading">{words.loading}</p>;
}

interface FactsProps {
  of: readonly (readonly [string, ComponentChildren])[];
  isBig?: boolean;
}

/** A list of names and values. */
export function Facts({ of, isBig = false }: FactsProps) {
  return (
    <dl class={isBig ? "facts big" : "facts"}>
      {of.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

export type Tone = "good" | "warn" | "bad" | "calm";

export function Tag({
  tone = "calm",
  children,
  title,
}: {
  tone?: Tone;
  children: ComponentChildren;
  title?: string;
}) {
  return (
    <span class={`tag ${tone}`} title={title}>
      {children}
    </span>
  );
}

/** How long ago something was, with the time itself for who points at it. */
export function Age({ at }: { at: number | null | undefined }) {
  return <span title={format.time(at)}>{format.ago(at, now.value)}</span>;
}

/** A time, of which a narrow column breaks neither the day nor the clock. */
export function Time({ at }: { at: number | null | undefined }) {
  const parts = format.time(at).split(" ");
  return (
    <time>
      {parts.map((part, index) => (
        <span key={part}>
          {index > 0 && " "}
          <span class="whole">{part}</span>
        </span>
      ))}
    </time>
  );
}

/** A button that copies, and says that it did. */
export function Copy({ text, label = words.copy }: { text: string; label?: string }) {
  const [isDone, setDone] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    setDone(true);
    setTimeout(() => setDone(false), 1500);
  };
  return (
    <button type="button" class="small" onClick={() => void copy()}>
      {isDone ? words.copied : label}
    </button>
  );
}

export const queueHref = (vhost: string, name: string, tab?: string): string =>
  href("/queue", { vhost, name, tab });

export const exchangeHref = (vhost: string, name: string): string =>
  href("/exchange", { vhost, name });

export const connectionHref = (name: string): string => href("/connection", { name });

/** A name that a narrow column breaks behind its points and hyphens rather than within a word. */
export function Name({ text }: { text: string }) {
  const parts = text.split(/(?<=[._:/-])/);
  return (
    <>
      {parts.map((part, index) => (
        <Fragment key={index}>
          {index > 0 && <wbr />}
          {part}
        </Fragment>
      ))}
    </>
  );
}

export function QueueLink({ vhost, name }: { vhost: string; name: string }) {
  return (
    <a href={queueHref(vhost, name)}>
      <Name text={name} />
    </a>
  );
}

export function ExchangeLink({ vhost, name }: { vhost: string; name: string }) {
  return <a href={exchangeHref(vhost, name)}>{name || words.exchanges.byDefault}</a>;
}

/** A value of a table of arguments, as text. */
export function valueText(value: unknown): string {
  return typeof value === "string" ? value : JSON.stringify(value);
}

interface ArgumentsProps {
  of: Record<string, unknown>;
  /** What stands for none. */
  none?: string;
}

export function Arguments({ of, none = words.none }: ArgumentsProps) {
  const all = Object.entries(of);
  if (all.length === 0) return <span class="dim">{none}</span>;
  return (
    <span class="arguments">
      {all.map(([name, value]) => (
        <code key={name}>
          {name}: {valueText(value)}
        </code>
      ))}
    </span>
  );
}
