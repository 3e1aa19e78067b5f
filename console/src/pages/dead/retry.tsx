// Sends dead letters on: counts first, and sends only what was counted for.

import { useState } from "preact/hooks";
import { ask, change, path } from "../../core/api";
import { role } from "../../core/session";
import type { Retry } from "../../types";
import { useAct } from "../../ui/act";
import { Dialog } from "../../ui/dialog";
import { SelectField, TextField } from "../../ui/fields";
import { words } from "../../words";

const TEXTS = words.dead.dialog;

export interface Which {
  positions?: string[];
  contains?: string | undefined;
  reason?: string | undefined;
  died_in?: string | undefined;
}

interface Props {
  vhost: string;
  queue: string;
  which: Which;
  title: string;
  onClose: () => void;
}

type To = (typeof TEXTS.targets)[number][0];

export interface Plan {
  to: To;
  target: string;
  key: string;
  rate: string;
  limit: string;
  maxRetries: string;
  contains: string;
}

export const FIRST: Plan = {
  to: "queue",
  target: "",
  key: "",
  rate: "",
  limit: "",
  maxRetries: "",
  contains: "",
};

const AGAIN_MS = 500;

/** Bytes of a text that is looked for. */
const CONTAINS_MAX = 256;

export function targetOf({ to, target, key }: Plan): Record<string, string> {
  switch (to) {
    case "queue":
    case "exchange":
      return { to };
    case "named queue":
      return { queue: target };
    case "named exchange":
      return { exchange: target, routing_key: key };
  }
}

export function bodyOf(plan: Plan, which: Which, dry_run: boolean): Record<string, unknown> {
  const number = (text: string) => (text === "" ? undefined : Number(text));
  const { rate, limit, maxRetries, contains } = plan;
  const bounds = { rate: number(rate), limit: number(limit), max_retries: number(maxRetries) };
  const filter = contains === "" ? {} : { contains };
  return { ...targetOf(plan), ...which, ...filter, ...bounds, dry_run };
}

/** Waits for a dry run, which moves nothing: how long it takes depends on the queue. */
export async function finished(begun: Retry, looksMax = Infinity): Promise<Retry> {
  let retry = begun;
  for (let looks = 0; retry.state === "running" && looks < looksMax; looks += 1) {
    await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
    retry = await ask<Retry>(path("millrace", "retries", begun.id));
  }
  return retry;
}

export function RetryDialog({ vhost, queue, which, title, onClose }: Props) {
  const [plan, setPlan] = useState<Plan>(FIRST);
  const [counted, setCounted] = useState<Retry | undefined>(undefined);
  const { isBusy, run } = useAct();
  const put = (changes: Partial<Plan>) => {
    setPlan({ ...plan, ...changes });
    setCounted(undefined);
  };
  const start = (isDry: boolean) =>
    change<Retry>(
      "POST",
      path("millrace", "queues", vhost, queue, "retry"),
      bodyOf(plan, which, isDry),
    );
  const submit = async (event: Event) => {
    event.preventDefault();
    if (!counted) await run(async () => setCounted(await finished(await start(true))));
    else if (await run(() => start(false), TEXTS.begun(counted.sent))) onClose();
  };
  return (
    <Dialog title={title} onClose={onClose}>
      <form onSubmit={(event) => void submit(event)}>
        <TargetFields plan={plan} put={put} />
        {which.positions === undefined && role.value.peeks && (
          /* Whether messages have a text in them is for those who may look at them. */
          <TextField
            label={words.messagesTab.contains}
            hint={TEXTS.containsHint}
            type="search"
            maxLength={CONTAINS_MAX}
            value={plan.contains}
            onText={(contains) => put({ contains })}
          />
        )}
        <div class="row">
          <Whole
            label={TEXTS.rate}
            hint={TEXTS.rateHint}
            value={plan.rate}
            onText={(rate) => put({ rate })}
          />
          <Whole
            label={TEXTS.limit}
            hint={TEXTS.limitHint}
            value={plan.limit}
            onText={(limit) => put({ limit })}
          />
          <Whole
            label={TEXTS.maxRetries}
            hint={TEXTS.maxRetriesHint}
            value={plan.maxRetries}
            onText={(maxRetries) => put({ maxRetries })}
          />
        </div>
        {counted && <RetryResult retry={counted} />}
        <footer>
          <button type="button" onClick={onClose}>
            {words.cancel}
          </button>
          <button type="submit" class="primary" disabled={isBusy || counted?.sent === 0}>
            {counted ? TEXTS.send(counted.sent) : TEXTS.count}
          </button>
        </footer>
      </form>
    </Dialog>
  );
}

interface TargetProps {
  plan: Plan;
  put: (changes: Partial<Plan>) => void;
}

/** Where dead letters go. */
export function TargetFields({ plan, put }: TargetProps) {
  const isNamed = plan.to === "named queue" || plan.to === "named exchange";
  return (
    <>
      <SelectField
        label={TEXTS.to}
        value={plan.to}
        options={TEXTS.targets}
        onChoose={(to) => put({ to })}
      />
      {isNamed && (
        <TextField
          label={words.name}
          required
          value={plan.target}
          onText={(target) => put({ target })}
        />
      )}
      {plan.to === "named exchange" && (
        <TextField label={words.bindings.key} value={plan.key} onText={(key) => put({ key })} />
      )}
    </>
  );
}

interface WholeProps {
  label: string;
  hint: string;
  value: string;
  onText: (text: string) => void;
}

function Whole(props: WholeProps) {
  return <TextField type="number" min={1} step={1} {...props} />;
}

/** What a retry did, or would do. */
export function RetryResult({ retry }: { retry: Retry }) {
  const targets = retry.targets.map(({ exchange, routing_key, count }) =>
    TEXTS.target(count, exchange === "" ? routing_key : `${exchange} ${routing_key}`),
  );
  return (
    <div class="result" role="status">
      <p>
        <strong>{retry.dry_run ? TEXTS.would(retry.sent) : TEXTS.did(retry.sent)}</strong>{" "}
        {TEXTS.looked(retry.seen, retry.matched)}
      </p>
      <ul>
        {targets.map((text) => (
          <li key={text}>{text}</li>
        ))}
        {retry.other_targets > 0 && <li>{TEXTS.otherTargets(retry.other_targets)}</li>}
        {retry.stay_reasons.map((it) => (
          <li key={it.reason}>{TEXTS.stay(it.count, it.explanation)}</li>
        ))}
        {retry.gone > 0 && <li>{TEXTS.gone(retry.gone)}</li>}
      </ul>
      {retry.waits_for !== null && <p class="fault">{TEXTS.waits(retry.waits_for)}</p>}
    </div>
  );
}
