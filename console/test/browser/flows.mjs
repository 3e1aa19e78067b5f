// What operators do, by mouse and by keyboard. Each flow throws if something is not as it should be.

import assert from "node:assert/strict";
import { VHOST } from "./pages.mjs";
import { settled } from "./checks.mjs";
import { withQueues } from "./mocks.mjs";

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

  async "a wrong password is refused in words"({ page, base }) {
    await page.context().clearCookies();
    await page.goto(base);
    await page.getByLabel("User").fill("console-test-user");
    await page.getByLabel("Password").fill("wrong");
    await page.getByRole("button", { name: "Log in" }).click();
    await page.getByText(/The user or the password is wrong/).waitFor();
  },
};
