// A server for development: dist/ with the policy that the node sends, /api of a node behind it, and the three session
// routes, for which it keeps the user's login beside a cookie.
//
//   node dev/server.mjs --listen 127.0.0.1:8080 --node http://127.0.0.1:15672

import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { createServer, request } from "node:http";
import { dirname, extname, join, normalize } from "node:path";
import { fileURLToPath } from "node:url";

const DIST = join(dirname(fileURLToPath(import.meta.url)), "../dist");
const SESSION = "/api/millrace/session";
const COOKIE = "millrace_session";

const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' data:",
  "connect-src 'self'",
  "font-src 'self'",
  "base-uri 'none'",
  "form-action 'self'",
  "frame-ancestors 'none'",
].join("; ");

const TYPES = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript",
  ".css": "text/css",
  ".svg": "image/svg+xml",
};

/** Cookie → { authorization, csrf, user, tags }. */
const sessions = new Map();

export function serve({ listen, node }) {
  const [host, port] = listen.split(":");
  const server = createServer((asked, answer) => {
    if (asked.url.split("?")[0] === SESSION) return session(asked, answer, node);
    if (asked.url.startsWith("/api/")) return proxy(asked, answer, node);
    return file(asked, answer);
  });
  return new Promise((resolve) => server.listen(Number(port), host, () => resolve(server)));
}

function tell(answer, status, body, headers = {}) {
  answer.writeHead(status, {
    "content-type": "application/json",
    "cache-control": "no-store",
    ...headers,
  });
  answer.end(body === undefined ? undefined : JSON.stringify(body));
}

function known(asked) {
  const cookies = (asked.headers.cookie ?? "").split("; ").map((pair) => pair.split("="));
  return cookies
    .filter(([name]) => name === COOKIE)
    .map(([, id]) => sessions.get(id))
    .find(Boolean);
}

async function session(asked, answer, node) {
  const found = known(asked);
  if (asked.method === "GET") {
    if (!found)
      return tell(answer, 401, { error: "not_authorised", reason: "Nobody is logged in" });
    return tell(answer, 200, { user: found.user, tags: found.tags, csrf: found.csrf });
  }
  if (asked.method === "DELETE") {
    for (const [id, kept] of sessions) if (kept === found) sessions.delete(id);
    return tell(answer, 204, undefined, { "set-cookie": `${COOKIE}=; Path=/; Max-Age=0` });
  }
  const { username, password } = JSON.parse(await text(asked));
  const authorization = `Basic ${Buffer.from(`${username}:${password}`).toString("base64")}`;
  const who = await fetch(`${node}/api/whoami`, { headers: { authorization } });
  if (!who.ok) return tell(answer, who.status, await who.json());
  const { name: user, tags } = await who.json();
  const [id, csrf] = [randomBytes(24).toString("hex"), randomBytes(16).toString("hex")];
  sessions.set(id, { authorization, csrf, user, tags });
  return tell(
    answer,
    200,
    { user, tags, csrf },
    { "set-cookie": `${COOKIE}=${id}; Path=/; HttpOnly; SameSite=Strict` },
  );
}

function text(asked) {
  return new Promise((resolve) => {
    const parts = [];
    asked
      .on("data", (part) => parts.push(part))
      .on("end", () => resolve(Buffer.concat(parts).toString()));
  });
}

function proxy(asked, answer, node) {
  const found = known(asked);
  if (!found) return tell(answer, 401, { error: "not_authorised", reason: "Nobody is logged in" });
  if (asked.method !== "GET" && asked.headers["x-millrace-csrf"] !== found.csrf) {
    return tell(answer, 403, {
      error: "forbidden",
      reason: "The header x-millrace-csrf is missing or wrong",
    });
  }
  const { cookie: _, host: __, ...headers } = asked.headers;
  const { hostname, port } = new URL(node);
  const onward = request(
    {
      hostname,
      port,
      path: asked.url,
      method: asked.method,
      headers: { ...headers, authorization: found.authorization },
    },
    (told) => {
      const { "www-authenticate": ___, ...kept } = told.headers;
      answer.writeHead(told.statusCode, kept);
      told.pipe(answer);
    },
  );
  onward.on("error", () =>
    answer.headersSent
      ? answer.end()
      : tell(answer, 503, { error: "unavailable", reason: "The node does not answer" }),
  );
  answer.on("close", () => onward.destroy());
  asked.pipe(onward);
}

/** A file of dist/, or for any other path the page: what the path means is the console's business. */
function file(asked, answer) {
  const path = normalize(decodeURIComponent(asked.url.split("?")[0])).replace(/^\/+/, "");
  let name = "index.html";
  let contents;
  try {
    contents = readFileSync(join(DIST, path));
    name = path;
  } catch {
    contents = readFileSync(join(DIST, name));
  }
  answer.writeHead(200, {
    "content-type": TYPES[extname(name)] ?? "application/octet-stream",
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": name === "index.html" ? "no-cache" : "public, max-age=31536000, immutable",
  });
  answer.end(contents);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const option = (name, otherwise) => {
    const at = process.argv.indexOf(`--${name}`);
    return at < 0 ? otherwise : process.argv[at + 1];
  };
  const listen = option("listen", "127.0.0.1:8080");
  await serve({ listen, node: option("node", "http://127.0.0.1:15672") });
  console.log(`The console is at http://${listen}/`);
}
