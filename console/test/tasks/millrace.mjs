// The ten tasks in this console. A task that cannot be done yet says why.

import { VHOST } from "./seed.mjs";

const json = (route, body) =>
  route.fulfill({ status: 200, contentType: "application/json", body: JSON.stringify(body) });

/** An alarm, as the node tells it: it is put in the node's place, because a test cannot fill the memory. */
async function withAlarm(page) {
  const problem = {
    kind: "memory_alarm",
    severity: "critical",
    since: Date.now() - 60_000,
    object: { node: "millrace@1" },
    what: "publishers are held back: the node uses more memory than its limit",
    remedy: "drain the fullest queues, or raise the limit",
    seen_by: ["millrace@1"],
  };
  await page.route("**/api/millrace/problems", (route) =>
    json(route, { verdict: "critical", problems: [problem], left_out: 0, silent: [] }),
  );
}

const link = (page, name) =>
  page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name, exact: true });
const button = (page, name) => page.getByRole("button", { name, exact: true });

/** Opens a queue by its name. */
async function open(hands, name) {
  await hands.press("Control+k");
  await hands.write(name);
  await hands.page.getByRole("option", { name }).first().waitFor();
  await hands.press("Enter");
  await hands.page.getByRole("heading", { name, level: 1 }).waitFor();
}

export const TASKS = {
  stands: {
    before: ({ page }) => withAlarm(page),
    async act({ page }) {
      await page.getByText("publishers are held back").first().waitFor();
      return "the first thing on the overview; the alarm is put in the node's place";
    },
    after: ({ page }) => page.unroute("**/api/millrace/problems"),
  },
  find: {
    async act({ page, hands }) {
      await open(hands, "million");
      await hands.click(page.getByRole("link", { name: "Messages", exact: true }));
      await page.locator("tbody tr").first().waitFor();
      await hands.press("/");
      await hands.write('order":4711}');
      await hands.press("Enter");
      await page.locator("tbody code", { hasText: '"order":4711}' }).waitFor({ timeout: 300_000 });
      return "not taken, not flagged as redelivered";
    },
  },
  retry: {
    async act({ page, hands }) {
      await hands.click(link(page, "Dead letters"));
      const row = page.locator("tbody tr", { hasText: "expired" });
      await hands.click(row.getByRole("button", { name: "Send back…" }));
      await hands.type(page.getByLabel("Messages a second"), "50");
      await hands.click(button(page, "Count first"));
      await hands.click(page.getByRole("button", { name: "Send 500 messages back" }));
      await page.getByText("500 messages are being sent back.").waitFor();
    },
  },
  oldest: {
    async act({ page, hands }) {
      await hands.click(link(page, "Who holds it"));
      const row = page.locator("tbody tr", { hasText: "billing" }).first();
      await hands.click(row.getByRole("link", { name: "Which?" }));
      const holder = page.locator("tbody tr", { hasText: "billing-worker-7" }).first();
      await holder.waitFor();
      await hands.click(holder.getByRole("button", { name: "Close…" }));
      await hands.type(page.getByLabel("Reason"), "hangs");
      await hands.press("Enter");
      await page.getByText(/^The connection .* is closed/).waitFor();
      return "by most held, then by age in the queue: the API has no oldest over all queues";
    },
  },
  grows: {
    async act({ page }) {
      const first = page.locator(".card", { hasText: "grow fastest" }).locator("li").first();
      await first.getByText("grows", { exact: true }).waitFor();
      return "on the overview";
    },
  },
  undo: {
    not: "the API has no undo of a purge yet; the purge shows a sample and asks for the name",
  },
  pause: {
    async act({ page, hands }) {
      await open(hands, "slow");
      await hands.click(button(page, "Pause"));
      await page
        .getByText(/^paused by/)
        .first()
        .waitFor();
      return "the queue with all its consumers: the API cannot pause one of them yet";
    },
  },
  leader: { not: "the history has no marks for changes of leader yet" },
  access: {
    async act({ page, hands }) {
      await hands.click(link(page, "Users"));
      await hands.click(button(page, "New user"));
      await hands.type(page.getByLabel("Name", { exact: true }), "colleague");
      await hands.next("secret");
      await hands.choose(page.getByRole("combobox", { name: /^Access/ }), "read");
      await hands.choose(page.getByRole("dialog").getByRole("combobox", { name: /^Vhost/ }), VHOST);
      await hands.click(button(page, "Save"));
      await page.locator("tbody tr", { hasText: VHOST }).first().waitFor();
    },
  },
  share: {
    async act({ page, hands, browser, context }) {
      await hands.click(link(page, "Queues"));
      await hands.press("/");
      await hands.write("grows");
      await page.waitForFunction(() => document.querySelectorAll("tbody tr").length === 2);
      await hands.press("Control+l", "Control+c");
      const other = await browser.newContext();
      await other.addCookies(await context.cookies());
      const seen = await other.newPage();
      await seen.goto(page.url());
      await seen.waitForFunction(() => document.querySelectorAll("tbody tr").length === 2);
      await other.close();
    },
  },
};

/** Logs in, and waits for the first page. */
export async function logIn(page, base, user, password) {
  await page.goto(base);
  await page.getByLabel("User").fill(user);
  await page.getByLabel("Password").fill(password);
  await page.getByRole("button", { name: "Log in" }).click();
  await page.waitForSelector(".ranked li");
}

export const start = async (page, base) => {
  await page.goto(base);
  await page.waitForSelector("main h1");
};
