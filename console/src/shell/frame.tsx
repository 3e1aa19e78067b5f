// What stands around every page.

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { useOverview, useProblems } from "../core/broker";
import { isHelpOpen, isPaletteOpen } from "../core/keys";
import { THEMES, theme, type Theme, views } from "../core/kept";
import { place } from "../core/place";
import { worstFirst } from "../core/problems";
import { logOut, session } from "../core/session";
import { allowedPages, parentOf } from "../core/sitemap";
import { state } from "../live/stream";
import { topLayer } from "../ui/layers";
import { Notices } from "../ui/notice";
import { words } from "../words";
import { Help } from "./help";
import { Palette } from "./palette";
import { SaveView } from "./save";

export function Frame({ children }: { children: ComponentChildren }) {
  const [isOpen, setOpen] = useState(false);
  return (
    <div class={isOpen ? "frame open" : "frame"}>
      <a class="skip" href="#main">
        {words.skip}
      </a>
      <Bar onMenu={() => setOpen(!isOpen)} isOpen={isOpen} />
      <Navigation onGo={() => setOpen(false)} />
      <main id="main" tabIndex={-1}>
        {children}
      </main>
      <Notices isOnTop={topLayer.value === undefined} />
      {isHelpOpen.value && <Help />}
      {isPaletteOpen.value && <Palette />}
    </div>
  );
}

function Bar({ onMenu, isOpen }: { onMenu: () => void; isOpen: boolean }) {
  const { data } = useOverview();
  return (
    <header class="bar">
      <button
        type="button"
        class="quiet burger"
        aria-label={words.menu}
        aria-expanded={isOpen}
        onClick={onMenu}
      >
        ☰
      </button>
      <a class="brand" href="/">
        {words.product}
      </a>
      <span class="cluster" title={words.clusterName}>
        {shortName(data?.cluster_name ?? "")}
      </span>
      <Verdict />
      <span class="push" />
      <LiveState />
      <button
        type="button"
        class="quiet palette-button"
        onClick={() => (isPaletteOpen.value = true)}
      >
        {words.palette.button} <kbd>{words.palette.keys}</kbd>
      </button>
      <span class="who" title={session.value?.tags.join(", ")}>
        {session.value?.user}
      </span>
    </header>
  );
}

/** A cluster that nobody named has 32 digits for a name: the first are enough to know it again. */
const shortName = (name: string): string => (/^[0-9a-f]{32}$/.test(name) ? name.slice(0, 8) : name);

/** How many problems there are, wherever one is. */
function Verdict() {
  const { data } = useProblems();
  const count = worstFirst(data?.problems ?? []).length + (data?.left_out ?? 0);
  if (!data || count === 0) return null;
  const isCritical = data.problems.some((problem) => problem.severity === "critical");
  return (
    <a href="/" class={isCritical ? "tag bad" : "tag warn"}>
      {words.overview.problemCount(count)}
    </a>
  );
}

function LiveState() {
  const now = state.value;
  return (
    <span class={`live is-${now}`} role="status" title={words.liveTitles[now]}>
      {words.live[now]}
    </span>
  );
}

function Navigation({ onGo }: { onGo: () => void }) {
  const here = parentOf(place.value.path);
  const pages = allowedPages.value;
  const groups = [...new Set(pages.map((page) => page.group))];
  return (
    <nav aria-label={words.navigation} onClick={onGo}>
      {groups.map((group) => (
        <div key={group}>
          <h2>{words.groups[group]}</h2>
          <ul>
            {pages
              .filter((page) => page.group === group)
              .map((page) => (
                <li key={page.path}>
                  <a href={page.path} aria-current={page.path === here ? "page" : undefined}>
                    {page.title}
                  </a>
                </li>
              ))}
          </ul>
        </div>
      ))}
      <SavedViews />
      <div class="own">
        <select
          aria-label={words.theme.label}
          value={theme.value}
          onClick={(event) => event.stopPropagation()}
          onChange={(event) => (theme.value = event.currentTarget.value as Theme)}
        >
          {THEMES.map((name) => (
            <option key={name} value={name} selected={name === theme.value}>
              {words.theme[name]}
            </option>
          ))}
        </select>
        <button type="button" class="quiet small" onClick={() => (isHelpOpen.value = true)}>
          {words.help.button}
        </button>
        <button type="button" class="quiet small" onClick={() => void logOut()}>
          {words.logOut}
        </button>
      </div>
    </nav>
  );
}

function SavedViews() {
  return (
    <div>
      <h2>{words.views.title}</h2>
      <ul>
        {views.value.map((view) => (
          <li key={view.name} class="view">
            <a href={view.to}>{view.name}</a>
            <button
              type="button"
              class="quiet small"
              aria-label={words.views.forget(view.name)}
              onClick={() => (views.value = views.value.filter((it) => it !== view))}
            >
              ✕
            </button>
          </li>
        ))}
      </ul>
      <SaveView />
    </div>
  );
}
