// Who holds a message: consumer, channel, connection, host, each with a link.

import { useState } from "preact/hooks";
import { change, path } from "../../core/api";
import { href } from "../../core/place";
import { role, session } from "../../core/session";
import type { Holder } from "../../types";
import { TextField } from "../../ui/fields";
import { FormDialog, Opener } from "../../ui/form";
import { Age, connectionHref } from "../../ui/parts";
import { words } from "../../words";

const TEXTS = words.held;

/** `isWhole`: also for how long, which no column beside it says. */
export function HolderOf({ holder, isWhole = false }: { holder: Holder; isWhole?: boolean }) {
  const { connection, connection_name, user_provided_name, user, channel, consumer_tag, node } =
    holder;
  const [client] = (connection_name ?? "").split(" -> ");
  return (
    <p class="chain">
      {consumer_tag === undefined ? (
        TEXTS.fetched
      ) : (
        <a href={href("/consumers", { q: consumer_tag })}>{consumer_tag}</a>
      )}
      {" → "}
      {TEXTS.channel(channel)}
      {" → "}
      {connection_name === undefined ? (
        connection
      ) : (
        <a href={connectionHref(connection_name)} title={connection_name}>
          {user_provided_name ?? connection}
        </a>
      )}
      {user !== undefined && ` ${TEXTS.ofUser(user)}`}
      {client && ` → ${client}`} <span class="dim">({node})</span>
      {isWhole && holder.held_since && (
        <>
          {", "}
          {TEXTS.heldFor} <Age at={holder.held_since} />
        </>
      )}
    </p>
  );
}

/** Closes a connection: its messages come back to their queues. */
export function CloseConnection({ name, user }: { name: string; user: string }) {
  const { administrates, changes } = role.value;
  const isOwn = session.value?.user === user;
  if (!changes || !(administrates || isOwn)) return null;
  return (
    <Opener verb={`${TEXTS.close}…`} class="small danger">
      {(close) => <CloseDialog name={name} onClose={close} />}
    </Opener>
  );
}

function CloseDialog({ name, onClose }: { name: string; onClose: () => void }) {
  const [reason, setReason] = useState("");
  const headers: Record<string, string> = reason === "" ? {} : { "x-reason": reason };
  return (
    <FormDialog
      title={TEXTS.closeTitle(name)}
      verb={TEXTS.close}
      act={() => change("DELETE", path("connections", name), undefined, headers)}
      done={TEXTS.closed(name)}
      isDanger
      onClose={onClose}
    >
      <p>{TEXTS.closeText}</p>
      <TextField
        label={TEXTS.reason}
        hint={TEXTS.reasonHint}
        required
        value={reason}
        onText={setReason}
      />
    </FormDialog>
  );
}
