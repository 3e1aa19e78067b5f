import { path } from "../../core/api";
import { useQuery } from "../../core/query";
import { role } from "../../core/session";
import type { Binding, Queue } from "../../types";
import { BindForm, BindingList } from "../../ui/bindings";
import { words } from "../../words";

export function QueueBindings({ queue }: { queue: Queue }) {
  const { vhost, name } = queue;
  const query = useQuery<Binding[]>(path("queues", vhost, name, "bindings"));
  const mayChange = role.value.changes;
  return (
    <>
      <BindingList id="b" title={words.bindings.to(name)} of={query} mayChange={mayChange} />
      {mayChange && <BindForm vhost={vhost} queue={name} />}
    </>
  );
}
