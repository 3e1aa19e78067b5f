// Fields of forms.

import type { ComponentChildren, JSX } from "preact";

interface FieldProps {
  label: string;
  hint?: string;
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
  hint?: string;
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
  hint?: string;
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
