// The same tasks in the management console of RabbitMQ, as far as it has them.

import { execSync } from "node:child_process";
import { VHOST } from "./seed.mjs";

const tab = (page, name) => page.locator("#menu a", { hasText: new RegExp(`^${name}$`) });

const NO_RETRY = "only the shovel plugin moves messages: all of them, at full speed";

/** RabbitMQ's console for a broker whose watermark `ctl` can move; without it no alarm can be made. */
export const tasks = (ctl) => ({
  stands: ctl
    ? {
        before: () => execSync(`${ctl} set_vm_memory_high_watermark 0.00001`, { stdio: "ignore" }),
        async act({ page, hands }) {
          await hands.click(tab(page, "Connections"));
          await page.getByText("blocked").first().waitFor();
          await hands.click(tab(page, "Overview"));
          await page.locator("#memory-alarm").first().waitFor();
          return "the state of the connection, then a red number beside the node; its numbers are up to 5 s old";
        },
        after: () => execSync(`${ctl} set_vm_memory_high_watermark 0.6`, { stdio: "ignore" }),
      }
    : { not: "say --rabbitmqctl to raise an alarm" },
  find: { not: "no search; looking takes messages and flags them as redelivered" },
  retry: { not: NO_RETRY },
  oldest: {
    async act({ page, hands }) {
      await hands.click(tab(page, "Channels"));
      await hands.click(page.locator("th a", { hasText: "Unacked" }));
      await page.waitForTimeout(500);
      await hands.click(page.locator("th a", { hasText: "Unacked" }));
      await page.waitForTimeout(500);
      await hands.click(page.locator("table.list tbody a").first());
      await hands.click(page.locator("table.facts a[href*='connections/']").first());
      await hands.click(page.locator("h2", { hasText: "Close this connection" }));
      await page.locator("input[name='reason']").waitFor();
      await hands.type(page.locator("input[name='reason']"), "hangs");
      page.once("dialog", (dialog) => void dialog.accept());
      hands.clicks += 1;
      await hands.click(page.locator("input[value='Force Close']"));
      await page.waitForURL("**/#/connections");
      return "by most unacked: ages are not known";
    },
  },
  grows: {
    async act({ page, hands }) {
      await hands.click(tab(page, "Queues"));
      await hands.click(page.locator("th a", { hasText: "incoming" }));
      await page.waitForTimeout(500);
      await hands.click(page.locator("th a", { hasText: "incoming" }));
      await page.locator("table.list tbody tr", { hasText: "grows" }).first().waitFor();
      return "by incoming rate: growth is not told";
    },
  },
  undo: { not: "a purge cannot be undone" },
  pause: { not: "nothing can be paused" },
  leader: { not: "no history of leaders" },
  access: {
    async act({ page, hands }) {
      await hands.click(tab(page, "Admin"));
      await hands.click(page.locator("h2", { hasText: "Add a user" }));
      await hands.type(page.locator("input[name='username']"), "colleague");
      // The choice between a password and a hash stands between the two fields.
      await hands.type(page.locator("input[name='password']"), "secret");
      await hands.next("secret");
      await hands.next("management");
      await hands.click(page.locator("input[value='Add user']"));
      await hands.click(page.locator("table.list a", { hasText: "colleague" }));
      await hands.choose(page.locator("select[name='vhost']").first(), VHOST);
      await hands.type(page.locator("input[name='configure']"), "^$");
      await hands.next("^$");
      await hands.click(page.locator("input[value='Set permission']"));
      await page.locator("table.list td", { hasText: VHOST }).first().waitFor();
    },
  },
  share: { not: "the filter and the order are not in the address" },
});

export async function logIn(page, base, user, password) {
  await page.goto(base);
  await page.locator("input[name='username']").fill(user);
  await page.locator("input[name='password']").fill(password);
  await page.locator("input[type='submit']").click();
  await page.locator("#menu").waitFor();
}

export const start = async (page, base) => {
  await page.goto(`${base}/#/`);
  await page.locator("#menu").waitFor();
};
