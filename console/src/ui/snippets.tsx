// A program to copy, for this host, user and vhost: where a page is empty because no client has come yet.

import { useState } from "preact/hooks";
import { useOverview, useVhosts, user } from "../core/broker";
import { said } from "../core/place";
import { snippet, LANGUAGES, type Language } from "../snippet";
import { words } from "../words";
import { Choice } from "./fields";
import { Copy } from "./parts";

const AMQP_PORT = 5672;

export function Snippets({ queue = "hello" }: { queue?: string }) {
  const [language, setLanguage] = useState<Language>("pika");
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
        onChoose={setLanguage}
      />
      <pre tabIndex={0} aria-label={words.snippets.code}>
        {text}
      </pre>
      <Copy text={text} />
    </div>
  );
}
