// What came of something: told in a corner for a while, and read out.

import { signal } from "@preact/signals";
import { Refused } from "../core/api";
import { words } from "../words";

/** What can be done about it for a while. */
interface Offer {
  verb: string;
  run: () => void;
  forMs: number;
}

interface Notice {
  id: number;
  text: string;
  isError: boolean;
  offer?: Offer | undefined;
}

const SHOWN_MS = 6_000;

const notices = signal<Notice[]>([]);
let last = 0;

export function tell(text: string, isError = false, offer?: Offer): void {
  last += 1;
  const id = last;
  // What goes wrong again is told once, not once for each time.
  const others = notices.value.filter((it) => !(isError && it.isError && it.text === text));
  notices.value = [...others, { id, text, isError, offer }];
  // What went wrong stays until somebody takes it away.
  if (!isError) setTimeout(() => dismiss(id), offer?.forMs ?? SHOWN_MS);
}

function dismiss(id: number): void {
  notices.value = notices.value.filter((notice) => notice.id !== id);
}

/** Why the node did not do it. */
export function reasonOf(error: unknown): string {
  if (!(error instanceof Refused)) return String(error);
  if (error.status === 404) return words.errors.notFound;
  if (error.reason !== "") return error.reason;
  return error.status === 0 ? words.errors.noAnswer : words.errors.status(error.status);
}

/** `isOnTop`: nothing lies over it. There is a place for notices in each dialog, and one shows them. */
export function Notices({ isOnTop }: { isOnTop: boolean }) {
  return (
    <div class="notices" role="status" aria-live="polite">
      {(isOnTop ? notices.value : []).map(({ id, text, isError, offer }) => (
        <div key={id} class={isError ? "notice bad" : "notice"}>
          <span>{text}</span>
          {offer && (
            <button
              type="button"
              onClick={() => {
                dismiss(id);
                offer.run();
              }}
            >
              {offer.verb}
            </button>
          )}
          <button
            type="button"
            class="quiet"
            aria-label={words.dismiss}
            onClick={() => dismiss(id)}
          >
            ✕
          </button>
        </div>
      ))}
    </div>
  );
}
