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
    await page.getByText(/^as of .* ago$/).waitFor();
    await page.getByRole("link", { name: "Queues", exact: true }).click();
    await page.waitForURL("**/queues");
    await page.waitForTimeout(1_500);
    await page.getByRole("link", { name: "Dead letters", exact: true }).click();
    await page.getByText(/^as of .* ago$/).waitFor();
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
