// Fields of forms.

import type { ComponentChildren, JSX } from "preact";
import { useVhosts } from "../core/broker";
import { said } from "../core/place";
import { words } from "../words";
import { jsonObject } from "./json";

interface FieldProps {
  label: string;
  hint?: string | undefined;
  children: ComponentChildren;
}

export function Field({ label, hint, children }: FieldProps) {
  return (
    <label class="field">
      <span>{label}</span>
      {children}
      {hint !== undefined && <small>{hint}</small>}
    </label>
  );
}

type InputProps = Omit<JSX.IntrinsicElements["input"], "onInput"> & {
  label: string;
  hint?: string | undefined;
  onText: (text: string) => void;
};

export function TextField({ label, hint, onText, ...input }: InputProps) {
  return (
    <Field label={label} hint={hint}>
      <input
        autocomplete="off"
        spellcheck={false}
        {...input}
        onInput={(it) => onText(it.currentTarget.value)}
      />
    </Field>
  );
}

interface SelectProps<Value extends string> {
  label: string;
  hint?: string | undefined;
  value: Value;
  options: readonly (readonly [Value, string])[];
  onChoose: (value: Value) => void;
}

export function SelectField<Value extends string>({
  label,
  hint,
  value,
  options,
  onChoose,
}: SelectProps<Value>) {
  return (
    <Field label={label} hint={hint}>
      <select value={value} onChange={(it) => onChoose(it.currentTarget.value as Value)}>
        {options.map(([option, text]) => (
          <option key={option} value={option} selected={option === value}>
            {text}
          </option>
        ))}
      </select>
    </Field>
  );
}

/** Options that are called what they are. */
export const same = <Value extends string>(values: readonly Value[]): [Value, Value][] =>
  values.map((value) => [value, value]);

/** The vhost that a form begins with: the one that the page is filtered by, or the first. */
export function useFirstVhost(): string {
  const vhosts = useVhosts();
  return said("vhost") || (vhosts[0] ?? "/");
}

interface VhostFieldProps {
  value: string;
  onChoose: (vhost: string) => void;
}

export function VhostField(props: VhostFieldProps) {
  return <SelectField label={words.vhost} options={same(useVhosts())} {...props} />;
}

interface JsonFieldProps {
  label: string;
  hint?: string | undefined;
  value: string;
  rows?: number;
  onText: (text: string) => void;
}

/** A JSON object, as a text: of one line, or of several. The hint says if it is none. */
export function JsonField({ label, hint, value, rows, onText }: JsonFieldProps) {
  const told = jsonObject(value) ? hint : words.errors.json;
  if (rows === undefined)
    return <TextField label={label} hint={told} value={value} placeholder="{}" onText={onText} />;
  return <AreaField label={label} hint={told} value={value} rows={rows} onText={onText} />;
}

export function AreaField({ label, hint, value, rows = 8, onText }: JsonFieldProps) {
  return (
    <Field label={label} hint={hint}>
      <textarea
        rows={rows}
        spellcheck={false}
        value={value}
        onInput={(event) => onText(event.currentTarget.value)}
      />
    </Field>
  );
}

interface CheckProps {
  label: string;
  checked: boolean;
  onCheck: (checked: boolean) => void;
}

export function CheckField({ label, checked, onCheck }: CheckProps) {
  return (
    <label class="check">
      <input
        type="checkbox"
        checked={checked}
        onChange={(it) => onCheck(it.currentTarget.checked)}
      />
      <span>{label}</span>
    </label>
  );
}

/** Buttons of which one is chosen. */
export function Choice<Value extends string>({
  label,
  value,
  options,
  onChoose,
}: SelectProps<Value>) {
  return (
    <div class="choice" role="group" aria-label={label}>
      {options.map(([option, text]) => (
        <button
          key={option}
          type="button"
          aria-pressed={option === value}
          onClick={() => onChoose(option)}
        >
          {text}
        </button>
      ))}
    </div>
  );
}
