// Knowledge: notes that stay. Each act is a call of its tool, with a receipt, and may wait for a yes.

import { signal } from "@preact/signals";
import type { JSX } from "preact";
import { useRef } from "preact/hooks";
import { call } from "./api";
import { Markdown } from "./markdown";
import { attempt } from "./state";
import { bytes, t, visible } from "./text";

interface Entry {
  name: string;
  keywords: string[];
  is_fixed: boolean;
  size: number;
  untrusted_sources: string[];
  text: string;
}
interface Outcome {
  call: { status: string; output: string };
  entries: Entry[];
}

const entries = signal<Entry[]>([]);
const opened = signal<Entry | null>(null);
/** The entry that is written: "" for a new one. */
const editing = signal<string | null>(null);

export async function loadKnowledge(): Promise<void> {
  entries.value = (await call<Outcome>("list_knowledge", { max: 200 })).entries;
}

async function act(method: string, params: object): Promise<Outcome> {
  const done = await call<Outcome>(method, params);
  if (done.call.status !== "allowed") throw new Error(done.call.output);
  return done;
}

async function open(name: string): Promise<void> {
  editing.value = null;
  const found = await act("load_knowledge", { keywords: name });
  opened.value = found.entries.find((each) => each.name === name) ?? null;
}

async function save(keywords: string, content: string): Promise<void> {
  await act("save_knowledge", { keywords, content, interactive: true });
  editing.value = null;
  await loadKnowledge();
  const name = opened.value?.name;
  if (name) await open(name);
}

async function remove(entry: Entry): Promise<void> {
  if (!confirm(`${t.removeNote} ${entry.name}`)) return;
  await act("delete_knowledge", { keywords: entry.name, interactive: true });
  opened.value = null;
  await loadKnowledge();
}

function Editor({ name, text }: { name: string; text: string }): JSX.Element {
  const words = useRef<HTMLInputElement>(null);
  const content = useRef<HTMLTextAreaElement>(null);
  return (
    <form
      class="stacked"
      onSubmit={(event) => {
        event.preventDefault();
        void attempt(save(name || (words.current?.value ?? ""), content.current?.value ?? ""));
      }}
    >
      {name ? null : (
        <label>
          {t.keywords} <input ref={words} required />
        </label>
      )}
      <label>
        {t.text}
        <textarea ref={content} rows={8} required>
          {text}
        </textarea>
      </label>
      <p>
        <button type="submit">{t.save}</button>{" "}
        <button type="button" class="quiet" onClick={() => (editing.value = null)}>
          {t.cancel}
        </button>
      </p>
    </form>
  );
}

function Opened({ entry }: { entry: Entry }): JSX.Element {
  if (editing.value === entry.name) return <Editor name={entry.name} text={entry.text} />;
  return (
    <div class="inner">
      {entry.untrusted_sources.length ? (
        <p class="notice warning">
          {t.untrusted} {visible(entry.untrusted_sources.join(", "))}
        </p>
      ) : null}
      <Markdown text={entry.text} />
      {entry.is_fixed ? null : (
        <button type="button" class="quiet" onClick={() => (editing.value = entry.name)}>
          {t.edit}
        </button>
      )}
      <button type="button" class="quiet" onClick={() => void attempt(remove(entry))}>
        {t.remove}
      </button>
    </div>
  );
}

export function Knowledge(): JSX.Element {
  const isOpen = (entry: Entry) => opened.value?.name === entry.name;
  return (
    <>
      {entries.value.length ? null : <p>{t.none}</p>}
      <ul>
        {entries.value.map((entry) => (
          <li key={entry.name}>
            <button
              type="button"
              class="quiet"
              aria-expanded={isOpen(entry)}
              onClick={() => (isOpen(entry) ? (opened.value = null) : void attempt(open(entry.name)))}
            >
              {visible(entry.keywords.join(" ") || entry.name)}
            </button>{" "}
            <span class="faint">{bytes(entry.size)}</span>
            {opened.value && isOpen(entry) ? <Opened entry={opened.value} /> : null}
          </li>
        ))}
      </ul>
      {editing.value === "" ? (
        <Editor name="" text="" />
      ) : (
        <button type="button" class="quiet" onClick={() => (editing.value = "")}>
          + {t.newNote}
        </button>
      )}
    </>
  );
}
