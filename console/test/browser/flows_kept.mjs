// What the address keeps, and where notices are told. Each flow throws if something is not as it should be.

import assert from "node:assert/strict";
import { inspect, settled } from "./checks.mjs";
import { withClients } from "./mocks.mjs";
import { VHOST } from "./pages.mjs";

const of = (path, values) => `${path}?${new URLSearchParams({ vhost: VHOST, ...values })}`;

export const KEPT = {
  async "selected rows are in the address"({ page, open }) {
    await open(of("/queues", { q: "orders" }));
    const box = page.getByRole("checkbox", { name: "Select orders.dead" });
    await box.check();
    await page.waitForFunction(() => location.search.includes("selected="));
    await page.reload();
    await settled(page);
    assert.ok(await box.isChecked());
    await page.getByRole("region", { name: "1 queue selected" }).waitFor();
    await page.getByRole("button", { name: "Clear selection" }).click();
    await page.waitForFunction(() => !location.search.includes("selected="));
    await open(of("/queue", { name: "orders.dead", tab: "messages" }));
    await page.locator("tbody").getByRole("checkbox").first().check();
    await page.reload();
    await page.getByRole("button", { name: "Send 1 message back…" }).waitFor();
  },

  async "a queue that is called as no path may be is made, looked at and deleted"({ page, open }) {
    for (const name of ["..", "."]) {
      await open("/queues");
      await page.getByRole("button", { name: "New queue" }).click();
      const dialog = page.getByRole("dialog");
      await dialog.getByLabel("Name", { exact: true }).fill(name);
      await dialog.getByRole("combobox", { name: /^Vhost/ }).selectOption(VHOST);
      await dialog.getByRole("button", { name: "Declare" }).click();
      await page.getByText(`${name} is declared.`).waitFor();
      for (const tab of ["overview", "messages", "consumers", "settings", "bindings"]) {
        await open(of("/queue", { name, tab }));
        assert.deepEqual(await inspect(page), [], tab);
        assert.equal(await page.getByRole("alert").count(), 0, tab);
      }
      await open(of("/queue", { name, tab: "publish" }));
      await page.getByRole("button", { name: "Publish", exact: true }).click();
      await page.getByText("The message is published.").waitFor();
      await open(of("/queue", { name, tab: "messages" }));
      await page.getByText("1 message, that is all").waitFor();
      await page.getByRole("button", { name: "Delete…" }).click();
      await dialog.getByRole("textbox").fill(name);
      await dialog.getByRole("button", { name: "Delete", exact: true }).click();
      await page.getByText(`${name} is deleted.`).waitFor();
    }
  },

  async "messages that are traced are collected, and looked at one by one"({ page, open }) {
    const tracing = async (isTraced) => {
      await open(of("/vhosts", { q: VHOST }));
      await page.getByRole("button", { name: "Change", exact: true }).click();
      await page.getByRole("checkbox", { name: /^Trace:/ }).setChecked(isTraced);
      await page.getByRole("button", { name: "Save", exact: true }).click();
      await page.getByText(`${VHOST} is saved.`).waitFor();
    };
    await tracing(true);
    await page.getByRole("button", { name: "Traces…" }).click();
    assert.deepEqual(await inspect(page), []);
    await page.getByRole("button", { name: "Collect and look" }).click();
    await page.waitForURL("**/queue?*millrace.traces*");
    await open(of("/queue", { name: "orders", tab: "publish" }));
    await page.getByRole("button", { name: "Publish", exact: true }).click();
    await page.getByText("The message is published.").waitFor();
    await open(of("/queue", { name: "millrace.traces", tab: "messages" }));
    await page
      .locator("tbody")
      .getByText(/^publish\./)
      .first()
      .waitFor();
    await tracing(false);
  },

  async "the language of the snippets is in the address"({ page, open }) {
    await open(of("/queue", { name: "orders", tab: "consumers" }));
    await page.getByRole("button", { name: "Java", exact: true }).click();
    await page.waitForFunction(() => location.search.includes("language=java"));
    await page.reload();
    await page.getByText("import com.rabbitmq.client").waitFor();
  },

  async "dead letters are filtered by text and reason, which the address keeps"({ page, open }) {
    await open(of("/dead-letters", { name: "orders.dead" }));
    const rows = page
      .getByRole("region", { name: "Dead letters", exact: true })
      .locator("tbody tr");
    await rows.first().waitFor();
    const reason = page.getByRole("combobox", { name: "Reason" });
    await reason.selectOption("expired");
    await page.getByRole("button", { name: /^Send (all|these) back…/ }).waitFor();
    const shown = await rows.allInnerTexts();
    assert.ok(shown.length > 0 && shown.every((text) => text.includes("expired")), shown.join());
    await page.reload();
    await settled(page);
    assert.equal(await reason.inputValue(), "expired");
    await page.keyboard.press("/");
    await page.keyboard.type("no such queue");
    await page.getByText("Nothing matches the filter.").first().waitFor();
    assert.equal(await page.getByRole("button", { name: /^Send .* back…/ }).count(), 0);
    await page.waitForFunction(() => location.search.includes("q=no+such+queue"));
    assert.deepEqual(await inspect(page), []);
  },

  async "the list of all dead letters is asked for once, and when somebody wants it"({
    page,
    open,
  }) {
    await withClients(page);
    let asked = 0;
    page.on("request", (it) => (asked += Number(it.url().endsWith("/api/millrace/dead-letters"))));
    await open(of("/dead-letters", { name: "orders.dead" }));
    await page.getByText(/^as of (just now|.* ago)$/).waitFor();
    await page.getByRole("link", { name: "Queues", exact: true }).click();
    await page.waitForURL("**/queues");
    await page.waitForTimeout(1_500);
    await page.getByRole("link", { name: "Dead letters", exact: true }).click();
    await page.getByText(/^as of (just now|.* ago)$/).waitFor();
    assert.equal(asked, 1, "a look at another page asks nothing again");
    const again = page.waitForRequest("**/api/millrace/dead-letters");
    await page.getByRole("button", { name: "Look again" }).click();
    await again;
  },

  async "what a dialog's request came to is told in the dialog, within reach"({ page, open }) {
    await page.route("**/orders.dead/retry", (route) =>
      route.fulfill({ status: 503, json: { error: "unavailable", reason: "the leader is busy" } }),
    );
    await open(of("/dead-letters", { name: "orders.dead" }));
    await page.getByRole("button", { name: "Send all back…" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByRole("button", { name: "Count first" }).click();
    const notice = dialog.getByRole("status").getByText("the leader is busy");
    await notice.waitFor();
    await dialog.getByRole("button", { name: "Count first" }).click();
    await page.waitForTimeout(300);
    assert.equal(await notice.count(), 1, "the same is told once");
    assert.deepEqual(await inspect(page), []);
    await page.setViewportSize({ width: 360, height: 740 });
    assert.deepEqual(await inspect(page), []);
    await dialog.getByRole("button", { name: "Dismiss" }).click();
    await notice.waitFor({ state: "detached" });
  },
};
