import { isHelpOpen } from "../core/keys";
import { allowedPages } from "../core/sitemap";
import { Dialog } from "../ui/dialog";
import { words } from "../words";

export function Help() {
  const pairs = allowedPages.value.map((page): [string, string] => [
    `g ${page.key}`,
    words.help.goTo(page.title),
  ]);
  return (
    <Dialog title={words.help.title} onClose={() => (isHelpOpen.value = false)}>
      <dl class="keys">
        {[...words.help.keys, ...pairs].map(([keys, does]) => (
          <div key={keys}>
            <dt>
              <kbd>{keys}</kbd>
            </dt>
            <dd>{does}</dd>
          </div>
        ))}
      </dl>
    </Dialog>
  );
}
