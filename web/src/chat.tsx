// The conversation: messages, calls, plan, questions, and the field to write in.

import { useComputed, useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { post } from "./api";
import { Code, CopyButton, Markdown } from "./markdown";
import { ReceiptLink } from "./receipt";
import { attempt, before, choices, close, commands, extend, fail, folder, fork, machine, models, mostBytes, named, opened, planFirst, select, selected, send, sendTyped, stopTurn, reportError, toNewest } from "./state";
import { Diff, Files } from "./files";
import { bytes, number, t, visible } from "./text";
import type { CommandLine, Usage } from "./wire";
import { DOCUMENT, type Conversation, type Item, type Said, type SentDocument, type SentPicture, type ToolCall } from "./turn";

const NEAR_END = 80;
const AHEAD = 1_200; // pixels before an end of what is held, where more is loaded

function Claims({ said }: { said: Said }): JSX.Element | null {
  const wrong = said.claims.filter((claim) => claim.verdict !== "supported");
  if (!wrong.length) return null;
  return (
    <ul class="wrong" role="note">
      {wrong.map((claim) => (
        <li>
          <b>{t.notDone}:</b> {visible(claim.text)} {claim.receipt_id ? <ReceiptLink id={claim.receipt_id} /> : null}
        </li>
      ))}
    </ul>
  );
}

/** The arguments of a call, as a person reads them. */
export function Arguments({ text }: { text: string }): JSX.Element {
  let displayed = text;
  try {
    displayed = JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    // still being written, or no JSON: as it is
  }
  return <Code text={displayed} language="json" />;
}

function gist(text: string): string {
  try {
    const values = Object.values(JSON.parse(text) as Record<string, unknown>);
    return values.map((value) => (typeof value === "string" ? value : JSON.stringify(value))).join(" ");
  } catch {
    return text;
  }
}

function ToolRow({ item }: { item: ToolCall }): JSX.Element {
  const status = item.status.value;
  return (
    <details id={item.key} class={`call ${status}`}>
      <summary>
        <span class="dot" aria-hidden="true" />
        <b>{visible(item.tool)}</b>
        <span class="gist mono">{visible(gist(item.args.value).slice(0, 160))}</span>
        <span class="faint">
          {t[status]}
          {item.tookMs.value ? ` · ${number.format(item.tookMs.value)} ms` : ""}
        </span>
      </summary>
      <h4>{t.arguments}</h4>
      <Arguments text={item.args.value} />
      {item.changes.value.length ? <h4>{t.changes}</h4> : null}
      {item.changes.value.map((file) => (
        <Diff file={file} />
      ))}
      {item.output.value ? (
        <>
          <h4>{t.output}</h4>
          <pre class="plain" tabIndex={0}>
            {visible(item.output.value.slice(0, 100_000))}
          </pre>
        </>
      ) : null}
      {item.receipt.value ? <ReceiptLink id={item.receipt.value} /> : null}
    </details>
  );
}

function Reasoning({ said }: { said: Said }): JSX.Element | null {
  const text = said.reasoning.value;
  if (!text) return null;
  const words = number.format(text.trim().split(/\s+/).length);
  return (
    <details class="reasoning">
      <summary>
        {t.reasoning} · {words}
      </summary>
      <div class="plain" dir="auto">
        {visible(text.slice(0, 200_000))}
      </div>
    </details>
  );
}

function Answer({ said }: { said: Said }): JSX.Element {
  const text = useThrottled(said);
  const usage = said.usage;
  return (
    <article id={said.key} class="message assistant" aria-label={t.agent}>
      <Reasoning said={said} />
      <Markdown text={text} />
      {said.unreadable.map((each) => (
        <pre class="plain wrong">{visible(each.slice(0, 200))}</pre>
      ))}
      <Claims said={said} />
      {said.isLive.value ? (
        <span class="caret" aria-hidden="true" />
      ) : (
        <footer>
          <CopyButton text={said.text.value} />
          {said.id ? <ForkButton id={said.id} /> : null}
          {usage ? (
            <span class="faint">
              {[...speedOf(usage), ...(usage.context_used ? [`ctx ${number.format(usage.context_used)}`] : [])].join(" · ")}
            </span>
          ) : null}
          {said.model ? <span class="faint">{visible(said.model)}</span> : null}
        </footer>
      )}
    </article>
  );
}

// Text that streams is drawn at most every so often, however many pieces it comes in.
const DRAW_MS = 60;

function useThrottled(said: Said): string {
  const displayed = useSignal(said.text.peek());
  useEffect(() => {
    let timer = 0;
    const stop = said.text.subscribe((text) => {
      if (!said.isLive.peek()) displayed.value = text;
      else if (!timer) {
        timer = setTimeout(() => {
          timer = 0;
          displayed.value = said.text.peek();
        }, DRAW_MS) as unknown as number;
      }
    });
    return () => {
      clearTimeout(timer);
      stop();
    };
  }, [said]);
  return said.isLive.value ? displayed.value : said.text.value;
}

function ForkButton({ id }: { id: number }): JSX.Element {
  return (
    <button type="button" class="quiet" onClick={() => void fork(id)}>
      {t.fork}
    </button>
  );
}

// A message is sent anew in a copy that ends before it: what was said stays as it was. One that is
// not stored, as its turn was stopped, is sent again where it was.
async function sendAnew(item: Said, text: string): Promise<void> {
  if (!item.id) return send(text, item.pictures, item.documents);
  const at = await before(item.id);
  if (at) await fork(at);
  else await select("");
  await send(text, item.pictures, item.documents).catch((error: unknown) => {
    selected.value.say(text, item.pictures, item.documents); // to be edited there
    fail(selected.value, error);
  });
}

// Whether a message can be sent again with what it was sent with.
function hasItsFiles(item: Said): boolean {
  const isRead = !item.documents.length && item.text.value.includes(DOCUMENT);
  return !isRead && item.pictures.every((each) => each.data);
}

function Question({ item }: { item: Said }): JSX.Element {
  const editing = useSignal(false);
  const draft = useRef<HTMLTextAreaElement>(null);
  const isIdle = selected.value.doing.value === "";
  if (editing.value) {
    const go = () => {
      editing.value = false;
      void attempt(sendAnew(item, draft.current?.value ?? ""));
    };
    return (
      <article id={item.key} class="message user">
        <textarea ref={draft} aria-label={t.editAgain} rows={4}>
          {item.text.value}
        </textarea>
        <footer>
          <button type="button" onClick={go}>
            {t.send}
          </button>
          <button type="button" class="quiet" onClick={() => (editing.value = false)}>
            {t.cancel}
          </button>
        </footer>
      </article>
    );
  }
  return (
    <article id={item.key} class="message user" aria-label={t.you}>
      <Pictures of={item.pictures} />
      {item.documents.length ? (
        <ul class="pictures">
          {item.documents.map((each) => (
            <li class="faint">{visible(each.name)}</li>
          ))}
        </ul>
      ) : null}
      <div class="plain" dir="auto">
        {visible(item.text.value.slice(0, 200_000))}
      </div>
      {isIdle && hasItsFiles(item) ? (
        <footer>
          <button type="button" class="quiet" onClick={() => (editing.value = true)}>
            {t.editAgain}
          </button>
          <button type="button" class="quiet" onClick={() => void attempt(sendAnew(item, item.text.value))}>
            {t.regenerate}
          </button>
        </footer>
      ) : null}
    </article>
  );
}

function Row({ item }: { item: Item }): JSX.Element {
  switch (item.kind) {
    case "user":
      return <Question item={item} />;
    case "assistant":
      return <Answer said={item} />;
    case "tool":
      return <ToolRow item={item} />;
    case "notice":
      return (
        <p id={item.key} class={`notice ${item.level}`} role={item.level === "error" ? "alert" : "status"}>
          {visible(item.text)}
        </p>
      );
  }
}

function Messages({ of }: { of: Conversation }): JSX.Element {
  const items = of.items.value;
  const isLoading = useSignal(false);
  const isAway = useSignal(false);
  const place = useRef<HTMLDivElement>(null);
  const isAtEnd = useRef(true);
  const held = useRef<{ row: Element; top: number; hasFocus: boolean } | null>(null);
  // The row that is read stays where it is while others come before it or go.
  const hold = () => {
    const element = place.current;
    if (!element) return;
    const top = element.getBoundingClientRect().top;
    const row = [...element.querySelectorAll(".column > [id]")].find((each) => each.getBoundingClientRect().bottom > top);
    const hasFocus = element.contains(document.activeElement);
    held.current = row ? { row, top: row.getBoundingClientRect().top, hasFocus } : null;
  };
  const load = async (where: "older" | "newer") => {
    if (isLoading.peek()) return;
    isLoading.value = true;
    await attempt(extend(of, where, hold));
    isLoading.value = false;
  };
  const look = () => {
    const element = place.current;
    if (!element) return; // the last event of a list that is gone
    const left = element.scrollHeight - element.scrollTop - element.clientHeight;
    isAtEnd.current = !of.newer.peek() && left < NEAR_END;
    isAway.value = !isAtEnd.current && (of.newer.peek() !== "" || left > element.clientHeight);
    if (of.newer.peek() && left < AHEAD) void load("newer");
    else if (of.older.peek() && element.scrollTop < AHEAD) void load("older");
  };
  const stick = () => {
    const element = place.current;
    if (element && isAtEnd.current && !of.newer.peek()) element.scrollTop = element.scrollHeight;
  };
  useLayoutEffect(() => {
    const element = place.current;
    if (!element) return;
    const { row, top, hasFocus } = held.current ?? {};
    held.current = null;
    const hit = of.hit.peek() ? document.getElementById(of.keyOf(of.hit.peek())) : null;
    if (hit) {
      of.hit.value = 0;
      isAtEnd.current = false;
      hit.tabIndex = -1;
      hit.scrollIntoView({ block: "center" });
      hit.focus({ preventScroll: true });
    } else if (row?.isConnected) element.scrollTop += row.getBoundingClientRect().top - top!;
    else stick();
    if (hasFocus && !element.contains(document.activeElement)) element.focus({ preventScroll: true });
  });
  useEffect(() => {
    const content = place.current?.firstElementChild;
    if (!content) return undefined;
    const observer = new ResizeObserver(stick);
    observer.observe(content);
    return () => observer.disconnect();
  }, []);
  useEffect(look, [items]);
  void of.hit.value; // a hit in what is displayed already is scrolled to as well
  const ends = useRef(0);
  if (ends.current !== of.toEnd.value) {
    ends.current = of.toEnd.value;
    isAtEnd.current = true;
    held.current = null;
  }
  return (
    <div class="stage">
      <div class="messages" ref={place} onScroll={look} role="log" aria-label={t.chat} aria-busy={isLoading.value} tabIndex={0}>
        <div class="column">
          {of.older.value ? (
            <button type="button" class="quiet" onClick={() => void load("older")}>
              {t.older}
            </button>
          ) : null}
          {items.length === 0 ? <Welcome /> : null}
          {items.map((item) => (
            <Row key={item.key} item={item} />
          ))}
          {of.newer.value ? (
            <button type="button" class="quiet" onClick={() => void load("newer")}>
              {t.newer}
            </button>
          ) : null}
        </div>
      </div>
      {isAway.value ? (
        <button type="button" class="newest" onClick={() => void toNewest(of)}>
          ↓ {t.newest}
        </button>
      ) : null}
    </div>
  );
}

function Welcome(): JSX.Element {
  return (
    <div class="welcome">
      <h2>{t.welcome}</h2>
      <p>{t.welcomeHint}</p>
      {machine.value.model_note ? <p class="faint">{String(machine.value.model_note)}</p> : null}
    </div>
  );
}

function Asked({ of }: { of: Conversation }): JSX.Element | null {
  const question = of.question.value;
  const field = useRef<HTMLInputElement>(null);
  if (!question) return null;
  const reply = (value: string) => {
    of.question.value = null;
    void attempt(post(`/questions/${question.id}`, { value }));
  };
  return (
    <form
      class="asked"
      onSubmit={(event) => {
        event.preventDefault();
        const value = field.current?.value || question.fallback;
        if (value || !question.options.length) reply(value);
      }}
    >
      <b>{t.question}:</b> {visible(question.text)}
      <div class="choices">
        {question.options.map((option) => (
          <button type="button" onClick={() => reply(option)}>
            {visible(option)}
          </button>
        ))}
        <input ref={field} aria-label={t.answer} placeholder={question.fallback} />
        <button type="submit">{t.answer}</button>
      </div>
    </form>
  );
}

interface Attached {
  name: string;
  size: number;
  text: string;
  picture: SentPicture | null;
  document: SentDocument | null;
}

const PICTURES = ["image/png", "image/jpeg", "image/webp", "image/gif"];
/** What a message has beside its text and its files, and more. */
const REST = 4_096;

function tooBig(): string {
  return `${t.tooBig} ${bytes(mostBytes.value)} (max_body_bytes in [channels.http])`;
}

async function attached(file: File): Promise<Attached> {
  const { name, size, type } = file;
  const isDocument = (await file.slice(0, 5).text()) === "%PDF-";
  if (!isDocument && !PICTURES.includes(type)) {
    const text = await file.text();
    if (text.includes("\0")) throw new Error(`${name} ${t.notText}`);
    return { name, size, text, picture: null, document: null };
  }
  const data = await new Promise<string>((done, fail) => {
    const reader = new FileReader();
    reader.onload = () => done(String(reader.result).split(",")[1] ?? "");
    reader.onerror = () => fail(reader.error);
    reader.readAsDataURL(file);
  });
  if (isDocument) return { name, size, text: "", picture: null, document: { name, data } };
  return { name, size, text: "", picture: { caption: name, url: URL.createObjectURL(file), data }, document: null };
}

/** Pictures of this tab's own files, by blobs alone; of others what is known of them. */
function Pictures({ of }: { of: SentPicture[] }): JSX.Element | null {
  if (!of.length) return null;
  return (
    <ul class="pictures">
      {of.map((each) => (
        <li>
          {each.url ? <img src={each.url} alt="" /> : null} <span class="faint">{visible(each.caption)}</span>
        </li>
      ))}
    </ul>
  );
}

/** The commands that may be meant; those of the workspace that nobody has trusted yet say so. */
function Commands({ items, take }: { items: CommandLine[]; take: (name: string) => void }): JSX.Element | null {
  if (!items.length) return null;
  return (
    <ul class="commands" aria-label={t.commands}>
      {items.map((each) => (
        <li>
          <button type="button" class="quiet" disabled={each.state !== "ready"} onClick={() => take(each.name)}>
            <b>/{each.name}</b> {visible(each.hint)}
          </button>{" "}
          <span class="faint">
            {each.state === "ready" ? visible(each.description) : `${t.notTrusted}: clawctl skill trust ${each.name} --kind command`}
          </span>
        </li>
      ))}
    </ul>
  );
}

const DRAFT = "clawd-draft";

function Composer({ of }: { of: Conversation }): JSX.Element {
  const field = useRef<HTMLTextAreaElement>(null);
  const picker = useRef<HTMLInputElement>(null);
  const files = useSignal<Attached[]>([]);
  const dropping = useSignal(false);
  const meant = useSignal<CommandLine[]>([]);
  const key = `${DRAFT}:${of.id}`;
  useEffect(() => {
    const element = field.current;
    if (!element) return;
    if (of.isFromField) {
      of.isFromField = false;
      sessionStorage.removeItem(`${DRAFT}:`);
      sessionStorage.setItem(key, element.value);
    } else element.value = sessionStorage.getItem(key) ?? "";
    grow(element);
    element.focus();
  }, [key]);
  const note = () => {
    if (!field.current) return; // another place of the page was chosen meanwhile
    sessionStorage.setItem(`${DRAFT}:${selected.peek().id}`, field.current.value);
    grow(field.current);
  };
  // What a first word with a slash may become, as the daemon has it at that moment.
  const offer = async () => {
    const begun = () => /^\/[a-z0-9_-]*$/.exec(field.current?.value ?? "")?.[0];
    const found = begun() === undefined ? [] : await commands();
    const word = begun();
    meant.value = word === undefined ? [] : found.filter((each) => `/${each.name}`.startsWith(word));
  };
  const takeCommand = (name: string) => {
    field.current!.value = `/${name} `;
    meant.value = [];
    note();
    field.current!.focus();
  };
  const attach = async (list: FileList | null | undefined) => {
    for (const file of list ?? []) {
      if (file.size > mostBytes.value) reportError(new Error(`${file.name} ${tooBig()}`));
      else files.value = [...files.value, await attached(file)];
    }
  };
  const go = () => {
    const text = field.current?.value.trim() ?? "";
    if (!text && !files.value.length) return;
    const given = files.value;
    const pictures = given.flatMap((file) => (file.picture ? [file.picture] : []));
    const documents = given.flatMap((file) => (file.document ? [file.document] : []));
    const isText = (file: Attached) => !file.picture && !file.document;
    const texts = given.filter(isText).map(fenced);
    const rest = texts.join("\n\n") || (text ? "" : given.map((each) => each.name).join(", "));
    const body = { text, rest, files: [...pictures, ...documents].map((each) => each.data) };
    if (new Blob([JSON.stringify(body)]).size + REST > mostBytes.value) {
      reportError(new Error(`${t.message} ${tooBig()}`));
      return;
    }
    field.current!.value = "";
    files.value = [];
    meant.value = [];
    note();
    sendTyped(text, rest, pictures, documents).catch((error: unknown) => {
      const typed = field.current?.value ?? ""; // meanwhile
      if (field.current) field.current.value = [text, typed].filter(Boolean).join("\n\n");
      files.value = [...given, ...files.value];
      note();
      reportError(error);
    });
  };
  const onKey = (event: KeyboardEvent) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      go();
    } else if (event.key === "Escape" && of.isRunning) void stopTurn();
  };
  return (
    <form
      class={dropping.value ? "composer dropping" : "composer"}
      onSubmit={(event) => {
        event.preventDefault();
        go();
      }}
      onDragOver={(event) => {
        event.preventDefault();
        dropping.value = true;
      }}
      onDragLeave={() => (dropping.value = false)}
      onDrop={(event) => {
        event.preventDefault();
        dropping.value = false;
        void attempt(attach(event.dataTransfer?.files));
      }}
    >
      <Choices />
      {files.value.length ? (
        <ul class="files">
          {files.value.map((file) => (
            <li>
              {file.picture ? <img src={file.picture.url} alt="" /> : null} {visible(file.name)} <span class="faint">{bytes(file.size)}</span>
              <button type="button" class="quiet" aria-label={`${t.remove} ${file.name}`} onClick={() => (files.value = files.value.filter((each) => each !== file))}>
                ×
              </button>
            </li>
          ))}
        </ul>
      ) : null}
      <Commands items={meant.value} take={takeCommand} />
      <div class="field">
        <button type="button" class="quiet" aria-label={t.attach} title={t.attach} onClick={() => picker.current!.click()}>
          <svg viewBox="0 0 16 16" width="18" height="18" aria-hidden="true">
            <path d="M5 8.5V5a3 3 0 0 1 6 0v5.5a1.75 1.75 0 0 1-3.5 0V5.5" fill="none" stroke="currentColor" stroke-width="1.4" stroke-linecap="round" />
          </svg>
        </button>
        <input ref={picker} type="file" multiple hidden onChange={() => void attempt(attach(picker.current!.files))} />
        <textarea
          id="field"
          ref={field}
          rows={1}
          placeholder={dropping.value ? t.dropHere : named.value.placeholder}
          aria-label={t.placeholder}
          onInput={() => {
            note();
            void attempt(offer());
          }}
          onKeyDown={onKey}
          onPaste={(event) => {
            if (!event.clipboardData?.files.length) return;
            event.preventDefault();
            void attempt(attach(event.clipboardData.files));
          }}
        />
        {of.doing.value ? (
          <button type="button" class="stop" onClick={() => void stopTurn()}>
            {t.stop}
          </button>
        ) : (
          <button type="submit">{t.send}</button>
        )}
      </div>
    </form>
  );
}

function grow(element: HTMLTextAreaElement): void {
  element.style.height = "auto";
  element.style.height = `${Math.min(element.scrollHeight, window.innerHeight * 0.4)}px`;
}

// A fence longer than any in the text, so that the file's end is where it ends.
function fenced(file: Attached): string {
  const longest = Math.max(2, ...Array.from(file.text.matchAll(/`+/g), (match) => match[0].length));
  const fence = "`".repeat(longest + 1);
  return `${file.name}:\n${fence}\n${file.text}\n${fence}`;
}

const TONES = ["deterministic", "precise", "balanced", "creative", "wild"];
const MODES = ["readonly", "supervised", "edits", "full"];

function Choices(): JSX.Element {
  const set = (name: string) => (event: Event) => {
    choices.value = { ...choices.value, [name]: (event.currentTarget as HTMLInputElement).value };
  };
  const pick = (label: string, name: "model" | "preset" | "mode", options: string[]) => (
    <label>
      <span>{label}</span>
      <select value={choices.value[name]} onChange={set(name)}>
        <option value="">{t.asConfigured}</option>
        {options.map((option) => (
          <option value={option}>{option}</option>
        ))}
      </select>
    </label>
  );
  return (
    <div class="choices-row">
      {pick(t.model, "model", models.value.items.map((each) => each.name))}
      {pick(t.tone, "preset", TONES)}
      {pick(t.mode, "mode", MODES)}
      <label>
        <span>{t.temperature}</span>
        <input type="number" min="0" max="5" step="0.1" value={choices.value.temperature} placeholder="–" onChange={set("temperature")} />
      </label>
      <label class="check">
        <input type="checkbox" checked={planFirst.value} onChange={(event) => (planFirst.value = event.currentTarget.checked)} />
        <span>{t.planFirst}</span>
      </label>
      {selected.value.id ? null : (
        <label>
          <span>{t.folder}</span>
          <input value={folder.value} placeholder={String(machine.value.workspace ?? "")} onChange={(event) => (folder.value = event.currentTarget.value)} />
        </label>
      )}
    </div>
  );
}

/** What an answer took, without what its server did not count. */
function speedOf(usage: Usage): string[] {
  if (!usage.completion_tokens) return [];
  const tokens = `${number.format(usage.completion_tokens)} tok`;
  return usage.tokens_per_s ? [tokens, `${usage.tokens_per_s.toFixed(1)} tok/s`] : [tokens];
}

function Metrics({ of }: { of: Conversation }): JSX.Element | null {
  const usage = of.usage.value;
  const text = useComputed(() => {
    if (!usage) return "";
    const context = usage.context_size ? [`ctx ${number.format(usage.context_used)}/${number.format(usage.context_size)}`] : [];
    const [tokens, ...speed] = speedOf(usage);
    const last = [tokens ?? "", `${(of.tookMs.value / 1000).toFixed(1)} s`].join(tokens ? " · " : "");
    return [...context, `last ${last}`, ...speed].join(" · ");
  });
  return usage ? <p class="metrics mono">{text.value}</p> : null;
}

/** The conversations that are open, and how each stands. */
function Opened(): JSX.Element | null {
  if (opened.value.length < 2) return null;
  return (
    <nav class="strip scroll" aria-label={t.opened}>
      {opened.value.map((each) => {
        const title = visible(each.line.value?.title || "…");
        const doing = each.doing.value;
        return (
          <span key={each.id} class={each === selected.value ? "open here" : "open"}>
            <button type="button" class="quiet" aria-current={each === selected.value ? "page" : undefined} onClick={() => void select(each.id)}>
              {doing ? <span class={`dot ${doing === "approval" ? "waiting" : "ready"}`} role="img" aria-label={t[doing]} /> : null} {title}
            </button>
            <button type="button" class="quiet" aria-label={`${t.close}: ${title}`} onClick={() => void close(each.id)}>
              ×
            </button>
          </span>
        );
      })}
    </nav>
  );
}

export function Chat(): JSX.Element {
  const of = selected.value;
  const sources = of.line.value?.untrusted_sources ?? [];
  return (
    <section class="chat" aria-label={t.chat}>
      <Opened />
      {of.plan.value ? (
        <details class="plan" open>
          <summary>{t.plan}</summary>
          <Markdown text={of.plan.value} />
        </details>
      ) : null}
      {of.id ? <Files of={of} key={`files-${of.id}`} /> : null}
      {sources.length ? (
        <p class="notice warning">
          {t.untrusted} {visible(sources.slice(0, 4).join(", "))}
        </p>
      ) : null}
      <Messages of={of} key={of.id} />
      <Asked of={of} />
      <Metrics of={of} />
      <Composer of={of} />
    </section>
  );
}
