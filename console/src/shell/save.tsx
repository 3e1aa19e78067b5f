// Gives the place where one is a name, to come back to it: filter, order and range are in its address.

import { useState } from "preact/hooks";
import { views } from "../core/kept";
import { words } from "../words";

export function SaveView() {
  const [name, setName] = useState<string | undefined>(undefined);
  if (name === undefined) {
    return (
      <button
        type="button"
        class="quiet small"
        onClick={(event) => {
          event.stopPropagation();
          setName("");
        }}
      >
        {words.views.save}
      </button>
    );
  }
  const save = (event: Event) => {
    event.preventDefault();
    const others = views.value.filter((view) => view.name !== name);
    if (name !== "") views.value = [...others, { name, to: location.pathname + location.search }];
    setName(undefined);
  };
  return (
    <form class="save" onSubmit={save} onClick={(event) => event.stopPropagation()}>
      <input
        autoFocus
        aria-label={words.views.name}
        placeholder={words.views.name}
        value={name}
        onInput={(event) => setName(event.currentTarget.value)}
        onKeyDown={(event) => event.key === "Escape" && setName(undefined)}
      />
      <button type="submit" class="small">
        {words.save}
      </button>
    </form>
  );
}
