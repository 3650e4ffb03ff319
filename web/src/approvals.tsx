// What waits for the person, over all conversations: the daemon's own diff, where, and four keys.

import { effect, signal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { Arguments } from "./chat";
import { Diff } from "./files";
import { answer, lines, named, select, waiting } from "./state";
import { t, visible } from "./text";
import type { ApprovalLine } from "./wire";

export const isOpen = signal(false);

const mayAsk = signal("Notification" in window && Notification.permission === "default");

async function notify(): Promise<void> {
  mayAsk.value = (await Notification.requestPermission()) === "default";
}

const KEYS = { o: "once", c: "conversation", p: "project", n: "deny" } as const;
const seen = new Set<string>();

// The title counts what waits, and a notification names what is new where the person asked
// for that.
effect(() => {
  const count = waiting.value.length;
  document.title = count ? `(${count}) ${visible(named.value.title)}` : visible(named.value.title);
  for (const each of waiting.value) {
    if (seen.has(each.id)) continue;
    seen.add(each.id);
    isOpen.value = true;
    if (document.hidden && "Notification" in window && Notification.permission === "granted") {
      new Notification(`${t.approvals}: ${each.tool}`, { body: visible(each.reason), tag: each.id });
    }
  }
  if (!count) isOpen.value = false;
});

function Card({ each }: { each: ApprovalLine }): JSX.Element {
  const line = lines.value.find((known) => known.id === each.conversation_id);
  const environment = Object.entries(each.environment);
  return (
    <li class={`card risk-${each.risk}`} data-approval={each.id}>
      <header>
        <b>{visible(each.tool)}</b> <span class="risk">{each.risk}</span>
        {line ? (
          <button type="button" class="quiet" onClick={() => void select(line.id)}>
            {visible(line.title)}
          </button>
        ) : null}
      </header>
      <p>{visible(each.reason)}</p>
      <p class="mono faint" dir="ltr">
        {visible(each.workspace)}
      </p>
      {each.changes.length ? (
        <details>
          <summary>{t.arguments}</summary>
          <Arguments text={each.arguments} />
        </details>
      ) : (
        <Arguments text={each.arguments} />
      )}
      {environment.length ? <pre class="plain">{visible(environment.map(([name, value]) => `${name}=${value}`).join("\n"))}</pre> : null}
      {each.changes.map((file) => (
        <Diff file={file} />
      ))}
      <div class="choices">
        <button type="button" onClick={() => void answer(each, "once")}>
          {t.once} <kbd>o</kbd>
        </button>
        <button type="button" onClick={() => void answer(each, "conversation")}>
          {t.conversation} <kbd>c</kbd>
        </button>
        {each.rule ? (
          <button type="button" title={each.rule} onClick={() => void answer(each, "project")}>
            {t.project} <kbd>p</kbd>
          </button>
        ) : null}
        <button type="button" class="deny" onClick={() => void answer(each, "deny")}>
          {t.deny} <kbd>n</kbd>
        </button>
      </div>
    </li>
  );
}

/** The tray. Its keys answer the oldest call, and only while the tray itself has the focus. */
export function Tray(): JSX.Element | null {
  const place = useRef<HTMLDivElement>(null);
  const first = waiting.value[0];
  useEffect(() => {
    // Whoever writes goes on writing; else the keys are the tray's.
    const at = document.activeElement;
    const isWriting = (at instanceof HTMLTextAreaElement || at instanceof HTMLInputElement) && at.value !== "";
    if (isOpen.value && first && !isWriting) place.current?.focus();
  }, [isOpen.value, first?.id]);
  if (!isOpen.value) return null;
  const onKey = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
    if (event.key === "Escape") isOpen.value = false;
    const how = KEYS[event.key as keyof typeof KEYS];
    if (!how || !first || (how === "project" && !first.rule)) return;
    event.preventDefault();
    void answer(first, how);
  };
  return (
    <div class="tray" ref={place} tabIndex={-1} onKeyDown={onKey} role="dialog" aria-label={t.approvals}>
      <header>
        <h2>{t.approvals}</h2>
        {mayAsk.value ? (
          <button type="button" class="quiet" onClick={() => void notify()}>
            {t.notifications}
          </button>
        ) : null}
        <button type="button" class="quiet" aria-label={t.close} onClick={() => (isOpen.value = false)}>
          ×
        </button>
      </header>
      {waiting.value.length ? null : <p>{t.noApprovals}</p>}
      <ol>
        {waiting.value.map((each) => (
          <Card key={each.id} each={each} />
        ))}
      </ol>
    </div>
  );
}
