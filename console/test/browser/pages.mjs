// The addresses that are looked at: each page of the navigation, and each page of one thing with its parts.

export const VHOST = "console-test";

const of = (path, values) => `${path}?${new URLSearchParams({ vhost: VHOST, ...values })}`;
const queue = (name, tab) => of("/queue", { name, tab });

export const PAGES = [
  "/",
  "/queues",
  of("/queues", { sort: "-ready,name", only: "waiting", columns: "name,ready,delayed,policy" }),
  queue("orders", "overview"),
  queue("orders", "messages"),
  of("/queue", { name: "orders", tab: "messages", message: "1" }),
  queue("proto", "messages"),
  of("/queue", { name: "orders", tab: "messages", since: "2026-11-29T12:00:00Z" }),
  queue("orders", "consumers"),
  queue("orders", "settings"),
  queue("orders", "bindings"),
  queue("orders", "publish"),
  queue("log", "stream"),
  queue("log.reader", "stream"),
  "/streams",
  of("/dead-letters", { name: "orders.dead" }),
  of("/held", { name: "orders" }),
  "/exchanges",
  of("/exchange", { name: "shop" }),
  of("/exchange", { name: "shop", tab: "publish" }),
  of("/topology", { exchange: "shop", key: "orders.eu" }),
  "/connections",
  `/connection?${new URLSearchParams({ name: "127.0.0.1:40000 -> 127.0.0.1:5672" })}`,
  "/channels",
  "/consumers",
  of("/locks", { lock: "nightly" }),
  "/companions",
  "/cluster",
  `/cluster?${new URLSearchParams({ node: "millrace@1" })}`,
  "/users",
  "/user?name=console-test-user",
  "/vhosts",
  "/policies",
  "/limits",
  "/audit",
  "/no-such-page",
];
