// The conversations at the side: found by words and meaning, else by when they were active last. Of a
// long list the rows on the screen are drawn, and some around them.

import { signal, useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { call } from "./api";
import { attempt, forget, folder, lines, linesCursor, loadLines, loadMoreLines, select, selected } from "./state";
import { t, visible, when } from "./text";
import type { ConversationLine } from "./wire";

export const isSideOpen = signal(false);

interface Hit {
  conversation_id: string;
  message_id: number;
  title: string;
  snippet: string;
}

const BY_FOLDER = "clawd-by-folder";
const isByFolder = signal(localStorage.getItem(BY_FOLDER) === "1");
const folded = signal<ReadonlySet<string>>(new Set());

function toggleFolders(): void {
  isByFolder.value = !isByFolder.value;
  localStorage.setItem(BY_FOLDER, isByFolder.value ? "1" : "0");
}

const found = signal<{ titled: ConversationLine[]; hits: Hit[] } | null>(null);
const MOST_TITLES = 10;
let searches = 0;

async function search(words: string): Promise<void> {
  const mine = ++searches;
  if (!words.trim()) return void (found.value = null);
  const [titled, hits] = await Promise.all([
    call<{ items: ConversationLine[] }>("list_conversations", { title: words, limit: MOST_TITLES }),
    call<{ items: Hit[] }>("search_memory", { query: words }),
  ]);
  if (mine === searches) found.value = { titled: titled.items, hits: hits.items }; // else more was typed
}

function go(id: string, messageId = 0): void {
  isSideOpen.value = false;
  void select(id, messageId);
}

export function Sidebar(): JSX.Element {
  return (
    <nav class={isSideOpen.value ? "side open" : "side"} aria-label={t.chat}>
      <button type="button" class="wide" onClick={() => go("")}>
        + {t.newChat}
      </button>
      <input type="search" placeholder={t.search} aria-label={t.search} onInput={(event) => void attempt(search(event.currentTarget.value))} />
      <button type="button" class="quiet" aria-pressed={isByFolder.value} onClick={toggleFolders}>
        {isByFolder.value ? "▾" : "▸"} {t.byFolder}
      </button>
      {found.value ? <Found titled={found.value.titled} hits={found.value.hits} /> : <Lines />}
    </nav>
  );
}

function Found({ titled, hits }: { titled: ConversationLine[]; hits: Hit[] }): JSX.Element {
  if (!titled.length && !hits.length) return <p role="status">{t.noHits}</p>;
  return (
    <div class="list">
      <ul>
        {titled.map((line, at) => (
          <Line key={line.id} line={line} position={at + 1} />
        ))}
        {hits.map((hit) => (
          <li key={hit.message_id} class="hit">
            <button type="button" class="line" onClick={() => go(hit.conversation_id, hit.message_id)}>
              <span class="title">{visible(hit.title)}</span>
              <span class="faint">{visible(hit.snippet)}</span>
            </button>
          </li>
        ))}
      </ul>
    </div>
  );
}

interface Heading {
  workspace: string;
  count: number;
}

/** Return the lines under headings of their folders, the one that was active last first. */
function grouped(all: ConversationLine[]): (ConversationLine | Heading)[] {
  const groups = new Map<string, ConversationLine[]>();
  for (const line of all) {
    const group = groups.get(line.workspace);
    if (group) group.push(line);
    else groups.set(line.workspace, [line]);
  }
  return [...groups].flatMap(([workspace, group]) => [{ workspace, count: group.length }, ...(folded.value.has(workspace) ? [] : group)]);
}

function Folder({ of }: { of: Heading }): JSX.Element {
  const isFolded = folded.value.has(of.workspace);
  const toggle = () => {
    const others = new Set(folded.value);
    if (!others.delete(of.workspace)) others.add(of.workspace);
    folded.value = others;
  };
  const begin = () => {
    folder.value = of.workspace;
    go("");
  };
  return (
    <li class="folder">
      <button type="button" class="line" aria-expanded={!isFolded} title={of.workspace} onClick={toggle}>
        <span class="title">
          {isFolded ? "▸" : "▾"} {visible(of.workspace.split("/").at(-1) || of.workspace)} <span class="faint">{of.count}</span>
        </span>
      </button>
      <button type="button" class="quiet" aria-label={`${t.newChat}: ${of.workspace}`} onClick={begin}>
        +
      </button>
    </li>
  );
}

const ROW_REM = 3.25; // as in style.css
const AROUND = 20; // rows drawn above and below the screen

function Lines(): JSX.Element {
  const place = useRef<HTMLDivElement>(null);
  const first = useSignal(0);
  const isLoading = useRef(false);
  const isGrouped = isByFolder.value;
  const all: (ConversationLine | Heading)[] = isGrouped ? grouped(lines.value) : lines.value;
  const row = ROW_REM * parseFloat(getComputedStyle(document.documentElement).fontSize);
  const look = () => {
    const element = place.current;
    if (!element) return;
    const seen = Math.floor(element.scrollTop / row);
    first.value = Math.max(0, seen - (seen % (AROUND / 2)) - AROUND);
    const left = element.scrollHeight - element.scrollTop - element.clientHeight;
    if (!isGrouped && left < AROUND * row && linesCursor.peek() && !isLoading.current) void more();
  };
  const more = async () => {
    isLoading.current = true;
    await attempt(loadMoreLines());
    isLoading.current = false;
  };
  useEffect(look, [lines.value, isGrouped]);
  const count = Math.ceil((place.current?.clientHeight ?? innerHeight) / row) + 2.5 * AROUND;
  const last = Math.min(all.length, first.value + count);
  const before = Math.min(first.value, all.length);
  return (
    <div class="list" ref={place} onScroll={look}>
      <ul style={{ paddingTop: `${before * row}px`, paddingBottom: `${(all.length - last) * row}px` }}>
        {all.slice(before, last).map((each, at) =>
          "id" in each ? (
            <Line key={each.id} line={each} position={before + at + 1} />
          ) : (
            <Folder key={each.workspace} of={each} />
          ),
        )}
      </ul>
      {isGrouped && linesCursor.value ? (
        <button type="button" class="wide quiet" onClick={() => void more()}>
          {t.more}
        </button>
      ) : null}
    </div>
  );
}

function Line({ line, position }: { line: ConversationLine; position: number }): JSX.Element {
  const isHere = selected.value.id === line.id;
  const place = line.workspace.split("/").at(-1) ?? "";
  const rename = async () => {
    const title = prompt(t.rename, line.title);
    if (title) await call("rename_conversation", { conversation_id: line.id, title });
    await loadLines();
  };
  const remove = async () => {
    if (!confirm(t.removeConfirm)) return;
    await call("delete_conversation", { conversation_id: line.id });
    lines.value = lines.value.filter((each) => each.id !== line.id);
    forget(line.id);
    if (isHere) await select("");
    await loadLines();
  };
  return (
    <li class={isHere ? "here" : ""} aria-posinset={position} aria-setsize={linesCursor.value ? -1 : lines.value.length}>
      <button type="button" class="line" aria-current={isHere ? "page" : undefined} onClick={() => go(line.id)}>
        <span class="title">{visible(line.title || "…")}</span>
        <span class="faint">
          {visible(place)} · {when(line.updated_at)}
        </span>
      </button>
      {isHere ? (
        <div class="tools">
          <button type="button" class="quiet" onClick={() => void attempt(rename())}>
            {t.rename}
          </button>
          <button type="button" class="quiet" onClick={() => void attempt(exported(line))}>
            {t.exportIt}
          </button>
          <button type="button" class="quiet" onClick={() => void attempt(remove())}>
            {t.remove}
          </button>
        </div>
      ) : null}
    </li>
  );
}

async function exported(line: ConversationLine): Promise<void> {
  let text = "";
  let cursor = "";
  do {
    const chunk = await call<{ text: string; cursor: string }>("export_conversation", {
      conversation_id: line.id,
      format: "markdown",
      cursor,
    });
    text += chunk.text;
    cursor = chunk.cursor;
  } while (cursor);
  const anchor = document.createElement("a");
  anchor.href = URL.createObjectURL(new Blob([text], { type: "text/markdown" }));
  anchor.download = `${line.id}.md`;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(anchor.href), 10_000);
}
