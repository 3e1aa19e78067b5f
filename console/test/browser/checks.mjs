// What holds of every page: no axe violation, no report of the content security policy, no request to another host, no
// error of the script, and nothing that is wider than the window.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** Collects what goes wrong on a page from now on. */
export async function watch(page, base) {
  const faults = [];
  const host = new URL(base).host;
  page.on("request", (request) => {
    const url = new URL(request.url());
    if (!["data:", "blob:"].includes(url.protocol) && url.host !== host)
      faults.push(`request to ${url.host}`);
  });
  page.on("pageerror", (error) => faults.push(`script: ${error.message}`));
  await page.exposeFunction("reportViolation", (text) => faults.push(`policy: ${text}`));
  await page.addInitScript(() => {
    document.addEventListener("securitypolicyviolation", (event) => {
      window.reportViolation(
        `${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}:${event.lineNumber}`,
      );
    });
  });
  return () => faults.splice(0);
}

/** Waits until the page shows what it has. */
export async function settled(page) {
  await page.waitForSelector("main h1");
  await page
    .waitForFunction(() => !document.querySelector(".loading"), undefined, { timeout: 8_000 })
    .catch(() => undefined);
  await page.waitForTimeout(250);
}

/** Tables that are cut at their right edge. */
const cut = (page) =>
  page.evaluate(() =>
    [...document.querySelectorAll("main .scroller:not(:has(svg.topology))")]
      .filter((box) => box.scrollWidth > box.clientWidth)
      .map((box) => `${box.ariaLabel} is ${box.scrollWidth} px wide in ${box.clientWidth}`),
  );

export async function inspect(page) {
  const faults = await cut(page);
  const { wide, width } = await page.evaluate(() => ({
    wide: document.documentElement.scrollWidth,
    width: document.documentElement.clientWidth,
  }));
  if (wide > width) faults.push(`the page is ${wide} px wide in a window of ${width}`);
  if (await page.locator(".loading").count()) faults.push("it is still loading");
  await page.evaluate(AXE);
  const { violations } = await page.evaluate(() =>
    window.axe.run(document, {
      runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"],
    }),
  );
  for (const { id, nodes } of violations) {
    faults.push(
      `axe ${id} (${nodes.length}): ${nodes[0].target.join(" ")} ${nodes[0].failureSummary.replace(/\s+/g, " ").slice(0, 220)}`,
    );
  }
  return faults;
}
