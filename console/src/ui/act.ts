// Doing something: tells what came of it, and has everything that is shown asked for again.

import { useState } from "preact/hooks";
import { stale } from "../core/query";
import { reasonOf, tell } from "./notice";

interface Act {
  isBusy: boolean;
  /** Answers whether it worked. */
  run: (doing: () => Promise<unknown>, done?: string) => Promise<boolean>;
}

export function useAct(): Act {
  const [isBusy, setBusy] = useState(false);
  const run = async (doing: () => Promise<unknown>, done?: string) => {
    setBusy(true);
    try {
      await doing();
      if (done !== undefined) tell(done);
      stale();
      return true;
    } catch (error) {
      tell(reasonOf(error), true);
      return false;
    } finally {
      setBusy(false);
    }
  };
  return { isBusy, run };
}
