// What operators do, by mouse and by keyboard. Each flow throws if something is not as it should be.

import assert from "node:assert/strict";
import { fileURLToPath } from "node:url";
import { VHOST } from "./pages.mjs";
import { inspect, settled } from "./checks.mjs";
import {
  withClients,
  withErrors,
  withIdentity,
  withMarks,
  withNodes,
  withQueues,
  withRetry,
} from "./mocks.mjs";

/** A set of descriptors, as protoc writes it. */
const SHOP = fileURLToPath(new URL("../unit/fixtures/shop.binpb", import.meta.url));

const queuePage = (name, tab) => `/queue?${new URLSearchParams({ vhost: VHOST, name, tab })}`;

export const FLOWS = {
  async "the filter, the order and the page are in the address"({ page, open }) {
    await open("/queues");
    await page.keyboard.press("/");
    await page.keyboard.type("orders");
    await page.waitForFunction(() => location.search.includes("q=orders"));
    await page.getByRole("button", { name: "Ready", exact: true }).click();
    await page.waitForFunction(() => location.search.includes("sort=-ready"));
    const before = await page.locator("tbody").innerText();
    await page.reload();
    await settled(page);
    assert.equal(await page.locator("[data-search]").inputValue(), "orders");
    assert.equal((await page.locator("tbody tr").count()) > 0, true, before);
  },

  async "the keyboard goes to pages, rows, the palette and the help"({ page, open }) {
    await open("/");
    await page.keyboard.press("g");
    await page.keyboard.press("q");
    await page.waitForURL("**/queues");
    await page.waitForSelector("tbody tr");
    await page.keyboard.press("j");
    await page.keyboard.press("j");
    await page.keyboard.press("k");
    await page.waitForFunction(() => document.activeElement?.closest("tr")?.dataset.row === "0");
    await page.keyboard.press("?");
    await page.getByRole("dialog").waitFor();
    await page.keyboard.press("Escape");
    await page.keyboard.press("Control+k");
    await page.keyboard.type("log.reader");
    await page.keyboard.press("Enter");
    await page.waitForURL("**/queue?*log.reader*");
  },

  async "what failed is said, and a button tries again"({ page, open }) {
    await withErrors(page);
    await open("/queues");
    const failure = page.getByRole("alert").filter({ hasText: "Queues cannot be shown." });
    await failure.getByText("the leader is busy: ask again").waitFor();
    await page.unrouteAll();
    await failure.getByRole("button", { name: "Try again" }).click();
    await page.waitForSelector("tbody tr[data-row]");
    assert.equal(await failure.count(), 0);
  },

  async "a column by which one sorts is shown"({ page, open }) {
    await open("/queues");
    assert.equal(await page.getByRole("columnheader", { name: "Growth /s" }).count(), 0);
    await open("/queues?sort=-growth");
    await page.getByRole("columnheader", { name: "Growth /s" }).waitFor();
  },

  async "a new user gets access to a vhost in the same form"({ page, open }) {
    await open("/users");
    await page.getByRole("button", { name: "New user" }).click();
    await page.getByLabel("Name", { exact: true }).fill("console-test-reader");
    await page.getByLabel("Password", { exact: true }).fill("x");
    await page.getByRole("combobox", { name: /^Access/ }).selectOption("read");
    await page
      .getByRole("dialog")
      .getByRole("combobox", { name: /^Vhost/ })
      .selectOption(VHOST);
    await page.getByRole("button", { name: "Save", exact: true }).click();
    const row = page.getByRole("region", { name: "Permissions", exact: true }).locator("tbody tr");
    await row.filter({ hasText: VHOST }).getByText("(nothing)").first().waitFor();
  },

  async "ten thousand queues are a few dozen rows, and sort at once"({ page, open }) {
    await withQueues(page, 10_000);
    await open("/queues");
    await page.waitForSelector("tbody tr[data-row]");
    assert.ok((await page.locator("tbody tr").count()) < 120);
    const ms = await page.evaluate(async () => {
      const began = performance.now();
      document.querySelector('th button:is([class="sort"])').click();
      await new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
      return performance.now() - began;
    });
    await page.locator(".scroller").evaluate((box) => (box.scrollTop = box.scrollHeight));
    await page.waitForSelector('tr[data-row="9999"]');
    return `sorting took ${Math.round(ms)} ms`;
  },

  async "a message is found by a text, shown, and published again"({ page, open }) {
    await open(queuePage("orders", "messages"));
    await page.getByLabel("Contains").fill('"order":17');
    await page.getByRole("button", { name: "Look", exact: true }).click();
    await page.getByText("1 message, that is all").waitFor();
    await page.locator("tbody button.link").click();
    await page.getByRole("dialog").getByText('"order": 17').waitFor();
    await page.getByRole("button", { name: "Publish again…" }).click();
    await page.getByText("reaches 2 queues").waitFor();
    await page.getByRole("button", { name: "Publish", exact: true }).click();
    await page.getByText("The message is published.").waitFor();
  },

  async "a header filters messages"({ page, open }) {
    await open(queuePage("orders", "messages"));
    await page.getByLabel("Header").fill("tenant: acme");
    await page.getByRole("button", { name: "Look", exact: true }).click();
    await page.getByText(/^1[56] messages, that is all$/).waitFor();
  },

  async "payloads in Protobuf are JSON once somebody brings their descriptor along"({
    page,
    open,
  }) {
    await open(queuePage("proto", "messages"));
    await page.locator("tbody").getByText("(binary)").first().waitFor();
    await page.getByRole("button", { name: "Protobuf…" }).click();
    const dialog = page.getByRole("dialog");
    const file = dialog.getByLabel(/^Add a file/);
    const broken = { name: "shop.proto", mimeType: "text/plain", buffer: Buffer.from("syntax") };
    await file.setInputFiles(broken);
    await page.getByText(/^shop\.proto is no whole set of descriptors/).waitFor();
    await file.setInputFiles(SHOP);
    await dialog.getByText("1,007 B, 3 types").waitFor();
    assert.deepEqual(await inspect(page), []);
    await dialog.getByRole("button", { name: "Close", exact: true }).last().click();
    // One message names its type, the other one has it once it is chosen for the queue.
    const read = page.locator("tbody").getByText('{"number":"9007199254740993","customer":"ann"');
    await read.waitFor();
    await page.reload();
    await page.locator("tbody button.link").first().click();
    await dialog.getByRole("button", { name: "Protobuf", exact: true }).click();
    await dialog.getByText(/^The message names no type/).waitFor();
    const type = dialog.getByRole("combobox", { name: /^Type of the messages of proto/ });
    await type.selectOption("shop.Order.Line");
    await dialog.getByText(/^The payload is no shop\.Order\.Line:/).waitFor();
    await type.selectOption("shop.Order");
    await dialog.getByText('"@type": "type.googleapis.com/shop.Cancelled"').waitFor();
    assert.deepEqual(await inspect(page), []);
    await page.setViewportSize({ width: 360, height: 740 });
    await page.emulateMedia({ colorScheme: "dark" });
    assert.deepEqual(await inspect(page), []);
    await page.keyboard.press("Escape");
    await page.waitForFunction(() => !location.search.includes("message="));
    assert.equal(await read.count(), 2, "the list shows both");
    await page.getByRole("button", { name: "Protobuf…" }).click();
    await dialog.getByRole("button", { name: "Remove shop.binpb" }).click();
    await dialog.getByText("This browser has no file of descriptors yet.").waitFor();
    assert.equal(await read.count(), 0, "they are bytes again");
  },

  async "where looking begins, and the header, are asked of the node and in the address"({
    page,
    open,
  }) {
    const asked = [];
    page.on("request", (it) => {
      if (it.url().includes("/orders/messages?")) asked.push(new URL(it.url()).searchParams);
    });
    await open(queuePage("orders", "messages"));
    const begin = page.getByRole("combobox", { name: "Begin at" });
    await begin.selectOption("last");
    await page.getByLabel("Header").fill("tenant: acme");
    await page.getByRole("button", { name: "Look", exact: true }).click();
    await page.waitForFunction(() => location.search.includes("position=last"));
    await page.waitForTimeout(300);
    assert.equal(asked.at(-1).get("from"), "last");
    assert.equal(asked.at(-1).get("header"), "tenant:acme");
    await begin.selectOption("time");
    await page.getByLabel(/^Time, in/).fill("2026-11-29T12:00:05");
    await page.getByRole("button", { name: "Look", exact: true }).click();
    await page.waitForFunction(() => location.search.includes("since=2026"));
    await page.waitForTimeout(300);
    const ms = await page.evaluate(() => new Date("2026-11-29T12:00:05").getTime());
    assert.equal(asked.at(-1).get("from_time"), String(ms));
    await page.reload();
    await settled(page);
    assert.equal(await page.getByLabel(/^Time, in/).inputValue(), "2026-11-29T12:00:05");
  },

  async "a dead letter is edited and sent back in one step"({ page, open }) {
    const sent = await withRetry(page);
    await open(queuePage("orders.dead", "messages"));
    await page.locator("tbody button.link").first().click();
    await page.getByRole("button", { name: "Edit and send back…" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("Payload", { exact: true }).fill("in time");
    await dialog.getByRole("button", { name: "Where would it go?" }).click();
    await dialog.getByText("1 message would be sent.").waitFor();
    assert.deepEqual(await inspect(page), []);
    await dialog.getByRole("button", { name: "Send back", exact: true }).click();
    await page.getByText("The message was sent back.").waitFor();
    const { positions, ...body } = sent.at(-1);
    assert.equal(positions.length, 1);
    const payload = { payload: "in time", payload_encoding: "string" };
    assert.deepEqual(body, { to: "queue", ...payload, dry_run: false });
  },

  async "one pipeline of a worker is paused, and says by whom"({ page, open }) {
    await withClients(page);
    const asked = [];
    await page.route("**/pause/push", (route) => {
      asked.push(route.request().method());
      return route.fulfill({ status: 204 });
    });
    await open("/companions");
    await page.getByText(/^paused by ann for \d+ min/).waitFor();
    await page.getByRole("button", { name: "Pause push" }).click();
    await page.getByText("push rests, once what it has begun is done.").waitFor();
    assert.deepEqual(asked, ["PUT"]);
    await page.getByRole("button", { name: "Resume mail" }).waitFor();
  },

  async "a queue is paused and goes on"({ page, open }) {
    await open(queuePage("orders", "overview"));
    await page.getByRole("button", { name: "Pause" }).click();
    await page
      .getByText(/paused by/)
      .first()
      .waitFor();
    await page.getByRole("button", { name: "Resume" }).click();
    await page.getByRole("button", { name: "Pause" }).waitFor();
  },

  async "dead letters are counted before they are sent back"({ page, open }) {
    await open(`/dead-letters?${new URLSearchParams({ vhost: VHOST, name: "orders.dead" })}`);
    await page.getByRole("button", { name: "Send back…" }).first().click();
    await page.getByLabel("Messages a second").fill("100");
    await page.getByRole("button", { name: "Count first" }).click();
    await page.getByText(/messages would be sent/).waitFor();
    await page.getByRole("button", { name: /Send 5 messages back/ }).click();
    await page.getByText(/are being sent back/).waitFor();
  },

  async "chosen dead letters are sent back, and the chart zooms"({ page, open }) {
    await open(queuePage("orders.dead", "messages"));
    await page.getByLabel("Select all rows").check();
    await page.getByRole("button", { name: /^Send \d+ messages? back…/ }).click();
    await page.getByRole("button", { name: "Count first" }).click();
    await page.getByText(/messages? would be sent/).waitFor();
    await open(queuePage("orders", "overview"));
    const plot = page.locator(".u-over");
    const box = await plot.boundingBox();
    await page.mouse.move(box.x + 200, box.y + 50);
    await page.mouse.down();
    await page.mouse.move(box.x + 400, box.y + 60, { steps: 5 });
    await page.mouse.up();
    await page.waitForFunction(() => /from=\d+&to=\d+/.test(location.search));
    await page.getByRole("button", { name: "Show all" }).click();
    await page.waitForFunction(() => !location.search.includes("from="));
  },

  async "a chart says what happened, also what somebody tells, and shows yesterday"({
    page,
    open,
  }) {
    await withMarks(page);
    await open(queuePage("orders", "overview"));
    const row = page.locator(".marks li", { hasText: "New leader of group 3, the catalog" });
    await row.getByText("millrace@2 instead of millrace@1").waitFor();
    await row.getByText("and 27 more").waitFor();
    await page.getByRole("button", { name: "Compare with yesterday" }).click();
    await page.waitForFunction(() => location.search.includes("compare=day"));
    await page.locator(".u-legend").getByText("Ready, yesterday").waitFor();
    await page.getByRole("button", { name: "Mark a deployment…" }).click();
    await page.getByLabel("What was deployed").fill("console-test 1.4.2");
    await page.getByRole("button", { name: "Save", exact: true }).click();
    await page.getByText("Deployment: console-test 1.4.2 (told by").first().waitFor();
    await page.getByRole("button", { name: "48 h" }).click();
    await page
      .getByRole("button", { name: "Compare with yesterday" })
      .waitFor({ state: "detached" });
  },

  async "a place in a stream is shown before a subscription is set there"({ page, open }) {
    await open(queuePage("log.reader", "stream"));
    await page.getByRole("button", { name: "Show what comes" }).click();
    await page.getByText(/^It would go on here, with \d+ messages:$/).waitFor();
    const places = page.getByRole("region", { name: "Show what comes" }).locator("tbody tr");
    assert.equal(await places.count(), 2, "each partition has a place");
    assert.ok((await page.locator(".sample li").count()) > 0, "the first messages are shown");
    assert.deepEqual(await inspect(page), []);
    await page.getByRole("button", { name: "New messages only" }).click();
    await page.getByRole("button", { name: "Show what comes" }).click();
    await page.getByText("It would wait for the next message:").waitFor();
  },

  async "relays and workers say how they stand, and what does not answer"({ page, open }) {
    await withClients(page);
    await open("/companions");
    await page.getByRole("heading", { name: "Relay at 127.0.0.1:9187" }).waitFor();
    await page.getByText("40,213").waitFor();
    await page.getByText("10.0.0.7:9190 does not answer: connection refused").waitFor();
    await page.keyboard.press("/");
    await page.keyboard.type("worker");
    await page.waitForFunction(() => location.search.includes("q=worker"));
    await page
      .getByRole("heading", { name: "Relay at 127.0.0.1:9187" })
      .waitFor({ state: "detached" });
    await page.getByText("HTTP 429 from hooks.example.com").waitFor();
  },

  async "a policy says what it would change before it is saved"({ page, open }) {
    await open("/policies");
    await page.getByRole("button", { name: "New policy" }).first().click();
    const dialog = page.getByRole("dialog");
    await dialog.getByRole("combobox", { name: /^Vhost/ }).selectOption(VHOST);
    await dialog.getByLabel("Name", { exact: true }).fill("console-test-short");
    await dialog.getByLabel(/^Pattern/).fill("^orders$");
    await dialog.getByLabel("Priority").fill("5");
    await dialog.getByLabel(/^Definition/).fill('{"max-length": 50000}');
    await dialog.getByRole("button", { name: "What would it change?" }).click();
    await dialog.getByText("It matches 1 queue, and would change 1 queue:").waitFor();
    await dialog.getByText("max-length: 50000").waitFor();
    assert.deepEqual(await inspect(page), []);
    await dialog.getByRole("button", { name: "Cancel" }).click();
  },

  async "a node is drained and replaced after its groups were named"({ page, open }) {
    await withNodes(page);
    await open("/cluster");
    await page.getByRole("button", { name: "Drain millrace@2" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByText("6 groups would move:").waitFor();
    await dialog.getByText("catalog: millrace@2, millrace@1 → millrace@1, millrace@2").waitFor();
    await dialog.getByText("and 1 more").waitFor();
    assert.deepEqual(await inspect(page), []);
    await dialog.getByRole("button", { name: "Drain", exact: true }).click();
    await page.getByText("6 group(s) move away from node 2.").waitFor();
    await page.getByRole("button", { name: "Replace millrace@2" }).click();
    const button = dialog.getByRole("button", { name: "Replace", exact: true });
    await dialog.getByLabel(/^Number of the new node/).fill("3");
    await dialog.getByText("take another number").waitFor();
    await dialog.getByLabel(/^Number of the new node/).fill("4");
    await dialog.getByText("6 groups would move:").waitFor();
    assert.ok(await button.isDisabled(), "the name is to be typed");
    await dialog.getByLabel(/^To confirm/).fill("millrace@2");
    await button.click();
    await page.getByText("Start it with an empty data directory").waitFor();
    assert.equal(await page.getByRole("dialog").count(), 0);
  },

  async "the stream is closed while nobody looks at the tab"({ page, open }) {
    await open("/");
    await page.getByText("live", { exact: true }).waitFor();
    const look = (state) =>
      page.evaluate((value) => {
        Object.defineProperty(document, "visibilityState", { value, configurable: true });
        document.dispatchEvent(new Event("visibilitychange"));
      }, state);
    let asked = 0;
    page.on("request", (request) => (asked += Number(request.url().includes("/api/"))));
    await look("hidden");
    await page.waitForTimeout(200);
    asked = 0;
    await page.waitForTimeout(4_000);
    assert.equal(asked, 0, "nothing is asked while the tab is hidden");
    const opened = page.waitForRequest("**/api/millrace/live");
    await look("visible");
    await opened;
  },

  async "a purge shows what goes, and asks for the name"({ page, open }) {
    await open(queuePage("orders", "overview"));
    await page.getByRole("button", { name: "Purge…" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByText(/messages ready will be gone/).waitFor();
    const button = dialog.getByRole("button", { name: "Purge", exact: true });
    assert.ok(await button.isDisabled());
    await dialog.getByRole("textbox").fill("orders");
    await button.click();
    await page.getByText("orders is purged.").waitFor();
    await page.getByText(/^\d+ messages purged\. For .* they can be brought back\.$/).waitFor();
    // It is offered to whoever looks at the queue.
    await page.reload();
    await page.getByRole("button", { name: "Undo", exact: true }).click();
    await page.getByText(/messages are back in the queue\.$/).waitFor();
    await page.getByRole("button", { name: "Undo", exact: true }).waitFor({ state: "detached" });
  },

  async "a purge of several queues can be undone from its notice"({ page, open }) {
    await open(`/queues?${new URLSearchParams({ vhost: VHOST, q: "orders" })}`);
    const row = page.locator("tbody tr", { hasText: "orders.dead" });
    await row.getByRole("checkbox").check();
    await page.getByRole("button", { name: "Purge…" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByRole("textbox").fill("1 queue");
    await dialog.getByRole("button", { name: "Purge…" }).click();
    await page.getByText("1 queue purged.").waitFor();
    await page.getByRole("button", { name: "Undo", exact: true }).click();
    await page.getByText(/messages? of 1 queue came back\.$/).waitFor();
  },

  async "who may only look is offered no change"({ page, base, logIn }) {
    await logIn(page, "console-test-user", "x");
    await page.goto(base + queuePage("orders", "overview"));
    await settled(page);
    for (const name of ["Pause", "Purge…", "Delete…"]) {
      assert.equal(await page.getByRole("button", { name }).count(), 0, name);
    }
    assert.equal(await page.getByRole("link", { name: "Users" }).count(), 0);
    await page.goto(`${base}/users`);
    await page.getByText("Your user lacks the tag that this page needs.").waitFor();
  },

  async "an identity server is a button, and who comes back is where one was"({ page, base }) {
    await page.context().clearCookies();
    const sent = await withIdentity(page, base);
    await page.goto(`${base}/queues?q=orders`);
    const button = page.getByRole("button", { name: "Log in at id.example" });
    await button.click();
    // The server is played: it sends the browser back at once.
    await page.getByText(/^The user or the password is wrong/).waitFor();
    assert.deepEqual([...sent], [{ code: "c0de", state: "s7ate", redirect_uri: `${base}/` }]);
    assert.equal(await page.evaluate("location.search"), "?q=orders", "no code in the address");
    assert.deepEqual(await inspect(page), []);
    sent.brings = "error=access_denied";
    await button.click();
    await page.getByText("The identity server did not let you in: access denied.").waitFor();
  },

  async "a wrong password is refused in words"({ page, base }) {
    await page.context().clearCookies();
    await page.goto(base);
    await page.getByLabel("User").fill("console-test-user");
    await page.getByLabel("Password").fill("wrong");
    await page.getByRole("button", { name: "Log in" }).click();
    await page.getByText(/The user or the password is wrong/).waitFor();
  },

  async "dialogs have no axe violation, in either theme"({ page, open }) {
    const press = (name) => page.getByRole("button", { name }).first().click();
    const dialogs = [
      ["/queues", () => press("New queue")],
      ["/queues", () => page.keyboard.press("?")],
      ["/queues", () => page.keyboard.press("Control+k")],
      [
        "/queues",
        async () => {
          await page.getByLabel("Select all rows").check();
          await press("Delete…");
        },
      ],
      ["/exchanges", () => press("New exchange")],
      ["/users", () => press("New user")],
      ["/vhosts", () => press("New vhost")],
      ["/policies", () => press("New policy")],
      [queuePage("orders", "overview"), () => press("Delete…")],
      ["/cluster", () => press("Mark a deployment…")],
      [
        `/dead-letters?${new URLSearchParams({ vhost: VHOST, name: "orders.dead" })}`,
        () => press("Send all back…"),
      ],
      [`/locks?${new URLSearchParams({ vhost: VHOST })}`, () => press("Release…")],
    ];
    const faults = [];
    for (const theme of ["light", "dark"]) {
      await page.emulateMedia({ colorScheme: theme });
      for (const [path, act] of dialogs) {
        await open(path);
        await act();
        await page.getByRole("dialog").waitFor();
        const found = await inspect(page);
        faults.push(...found.map((fault) => `${theme} ${path}: ${fault}`));
      }
    }
    assert.deepEqual(faults, []);
  },

  async "the first paint and a change of the page are quick"({ page, open }) {
    await open("/");
    const paint = await page.evaluate(
      () => performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? 0,
    );
    const change = async (name) => {
      const link = page
        .getByRole("navigation", { name: "Pages" })
        .getByRole("link", { name, exact: true });
      return link.evaluate(async (it) => {
        const began = performance.now();
        it.click();
        await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
        return performance.now() - began;
      });
    };
    const changes = [];
    for (const name of ["Queues", "Exchanges", "Queues", "Policies", "Overview"])
      changes.push(await change(name));
    const most = Math.max(...changes);
    return `first paint after ${Math.round(paint)} ms, a page after at most ${Math.round(most)} ms`;
  },
};
