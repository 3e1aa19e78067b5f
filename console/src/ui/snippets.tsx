// A program to copy, for this host, user and vhost: where a page is empty because no client has come yet.

import { useOverview, useVhosts, user } from "../core/broker";
import { said, show } from "../core/place";
import { snippet, LANGUAGES, type Language } from "../snippet";
import { words } from "../words";
import { Choice } from "./fields";
import { Copy } from "./parts";

const AMQP_PORT = 5672;

const languageOf = (text: string): Language =>
  LANGUAGES.find(([name]) => name === text)?.[0] ?? "pika";

export function Snippets({ queue = "hello" }: { queue?: string }) {
  const language = languageOf(said("language"));
  const { data } = useOverview();
  const seen = useVhosts();
  const vhost = said("vhost") || (seen.includes("/") ? "/" : (seen[0] ?? "/"));
  const port = data?.listeners.find((it) => it.protocol === "amqp")?.port ?? AMQP_PORT;
  const text = snippet(language, {
    host: location.hostname,
    port,
    user: user.value,
    vhost,
    queue,
  });
  return (
    <div class="snippets">
      <p>{words.snippets.intro}</p>
      <Choice
        label={words.snippets.language}
        value={language}
        options={LANGUAGES}
        onChoose={(it) => show({ language: it })}
      />
      <pre tabIndex={0} aria-label={words.snippets.code}>
        {text}
      </pre>
      <Copy text={text} />
    </div>
  );
}
