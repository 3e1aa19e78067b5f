// The ten tasks in this console. A task that cannot be done yet says why.

import { tellProblems } from "../browser/mocks.mjs";
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
  await tellProblems(page, {
    verdict: "critical",
    problems: [problem],
    left_out: 0,
    silent: [],
  });
}

/** Another leader, eight hours ago: a broker of one node has none. */
async function withLeaderOfLastNight(page) {
  await page.route("**/api/millrace/history/queues/**", async (route) => {
    const answer = await route.fetch();
    const told = await answer.json();
    const mark = {
      at: Date.now() - 8 * 3_600_000,
      kind: "leader",
      group: 3,
      term: 7,
      from: "millrace@1",
      to: "millrace@2",
      queues: [{ vhost: VHOST, name: "million" }],
      queue_count: 1,
    };
    const marks = mark.at >= told.from ? [mark] : [];
    await json(route, { ...told, marks });
  });
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
      return "who has held a message for longest is the first";
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
    async act({ page, hands }) {
      await open(hands, "scratch");
      await hands.click(button(page, "Purge…"));
      const dialog = page.getByRole("dialog");
      await hands.type(dialog.getByRole("textbox"), "scratch");
      await hands.press("Enter");
      await hands.click(button(page, "Undo"));
      await page.getByText(/messages? are back in the queue/).waitFor();
      return "the purge asks for the name, and can be undone for a minute";
    },
  },
  pause: {
    async act({ page, hands }) {
      await open(hands, "slow");
      await hands.click(page.getByRole("link", { name: "Consumers", exact: true }).last());
      const row = page.locator("tbody tr", { hasText: "billing" }).first();
      await hands.click(row.getByRole("button", { name: "Pause", exact: true }));
      await row.getByText(/^paused by/).waitFor();
      return "one consumer: others of the queue go on";
    },
  },
  leader: {
    before: ({ page }) => withLeaderOfLastNight(page),
    async act({ page, hands }) {
      await open(hands, "million");
      await hands.click(button(page, "24 h"));
      const row = page.locator(".marks li", { hasText: "New leader of group 3" });
      await row.getByText(/^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d/).waitFor();
      return "in the queue's chart and below it; the change is put in the node's place: one node has no other leader";
    },
    after: ({ page }) => page.unroute("**/api/millrace/history/queues/**"),
  },
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
