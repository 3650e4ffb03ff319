// Receipts as a timeline, and the chain verified by the browser itself.

import { signal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import { call } from "./api";
import { Arguments } from "./chat";
import { attempt, machine } from "./state";
import { number, t, visible, when } from "./text";
import { linesOf, verify, type Verdict } from "./verify";
import type { ReceiptLine } from "./wire";

interface Detail {
  receipt: Record<string, unknown>;
  arguments: string;
  result: string;
}

const filters = signal({ tool: "", status: "", risk: "", workspace: "", host: "" });
const items = signal<ReceiptLine[]>([]);
const cursor = signal("");
const opened = signal<{ id: string; detail: Detail } | null>(null);
const verdict = signal<(Verdict & { daemon: string; checkpoints: number }) | null>(null);
const progress = signal("");
/** A head that was kept elsewhere, as `SEQ:HASH`: the chain must go through it. */
const anchor = signal("");
const log = signal<Uint8Array<ArrayBuffer> | null>(null);

async function load(more = false): Promise<void> {
  const page = await call<{ items: ReceiptLine[]; cursor: string }>("list_receipts", {
    ...filters.value,
    limit: 100,
    cursor: more ? cursor.value : "",
  });
  items.value = more ? [...items.value, ...page.items] : page.items;
  cursor.value = page.cursor;
}

async function open(id: string): Promise<void> {
  opened.value = { id, detail: await call<Detail>("show_receipt", { receipt_id: id }) };
}

function decoded(text: string): Uint8Array {
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}

async function readLog(): Promise<Uint8Array<ArrayBuffer>> {
  const chunks: Uint8Array[] = [];
  let at = { file: 0, offset: 0 };
  for (;;) {
    const chunk = await call<{ data: string; file: number; offset: number; is_end: boolean }>("read_receipt_log", at);
    chunks.push(decoded(chunk.data));
    if (chunk.is_end) break;
    at = { file: chunk.file, offset: chunk.offset };
  }
  const whole = new Uint8Array(chunks.reduce((sum, chunk) => sum + chunk.length, 0));
  let place = 0;
  for (const chunk of chunks) {
    whole.set(chunk, place);
    place += chunk.length;
  }
  return whole;
}

async function check(): Promise<void> {
  verdict.value = null;
  const kept = anchor.value.trim();
  const [, seq, hash] = /^(\d+):([0-9a-f]{64})$/.exec(kept) ?? [];
  if (kept && !hash) throw new Error(t.noAnchor);
  progress.value = "…";
  try {
    log.value = await readLog();
    const lines = linesOf(log.value);
    const found = await verify(lines, hash ? { head: [Number(seq), hash] } : {}, (done) => (progress.value = `${number.format(done)} / ${number.format(lines.length)}`));
    const daemon = await call<{ message: string; checkpoints: number }>("verify_receipts", { anchor: kept });
    verdict.value = { ...found, daemon: daemon.message, checkpoints: daemon.checkpoints };
  } finally {
    progress.value = "";
  }
}

async function download(): Promise<void> {
  log.value ??= await readLog();
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([log.value], { type: "application/jsonl" }));
  link.download = "tool_receipts.log";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

// Browsers give their cryptography to secure contexts alone: this machine, or HTTPS.
const canVerify = (crypto.subtle as SubtleCrypto | undefined) !== undefined;

function Chain(): JSX.Element {
  const found = verdict.value;
  return (
    <div class="chain">
      {canVerify ? null : <p class="notice warning">{t.noCrypto}</p>}
      <button type="button" disabled={!canVerify || progress.value !== ""} onClick={() => void attempt(check())}>
        {progress.value ? `${t.verifying} ${progress.value}` : t.verify}
      </button>
      <label class="faint">
        {t.anchor} <input class="mono" value={anchor.value} placeholder="SEQ:HASH" onInput={(event) => (anchor.value = event.currentTarget.value)} />
      </label>
      <button type="button" class="quiet" onClick={() => void attempt(download())}>
        {t.exportIt} tool_receipts.log
      </button>
      {found ? (
        <div role="status" class={found.ok ? "good" : "wrong"}>
          <p>
            <b>{found.ok ? t.verified : `${t.broken}: ${t.receipt} ${found.firstBad}`}</b> · {number.format(found.receipts)} · signed{" "}
            {number.format(found.signed)} · {number.format(found.checkpoints)} {t.checkpoints}
          </p>
          <p class="mono break">
            {t.head} {found.receipts}:{found.head}
          </p>
          <p class="faint">clawd: {visible(found.daemon)}</p>
        </div>
      ) : null}
    </div>
  );
}

function Opened({ detail }: { detail: Detail }): JSX.Element {
  return (
    <div class="opened">
      <dl>
        {Object.entries(detail.receipt).map(([name, value]) =>
          value === "" || value === null ? null : (
            <>
              <dt>{name}</dt>
              <dd class="mono break">{visible(String(value))}</dd>
            </>
          ),
        )}
      </dl>
      <h4>{t.arguments}</h4>
      <Arguments text={detail.arguments} />
      <h4>{t.output}</h4>
      <pre class="plain" tabIndex={0}>
        {visible(detail.result.slice(0, 100_000))}
      </pre>
    </div>
  );
}

export function Proof(): JSX.Element {
  useEffect(() => {
    const named = /receipt=([^&]+)/.exec(location.hash)?.[1];
    void attempt(load());
    if (named) void attempt(open(decodeURIComponent(named)));
  }, []);
  const filter = (name: keyof typeof filters.value) => (event: Event) => {
    filters.value = { ...filters.value, [name]: (event.currentTarget as HTMLInputElement).value };
    void attempt(load());
  };
  const displayed = items.value;
  return (
    <section class="page" aria-label={t.proof}>
      <Chain />
      <div class="choices-row">
        <label>
          <span>{t.tool}</span>
          <input value={filters.value.tool} placeholder="file_*" onChange={filter("tool")} />
        </label>
        <label>
          <span>{t.status}</span>
          <select value={filters.value.status} onChange={filter("status")}>
            <option value="">{t.all}</option>
            {["allowed", "denied", "failed"].map((word) => (
              <option>{word}</option>
            ))}
          </select>
        </label>
        <label>
          <span>{t.risk}</span>
          <select value={filters.value.risk} onChange={filter("risk")}>
            <option value="">{t.all}</option>
            {["low", "medium", "high"].map((word) => (
              <option>{word}</option>
            ))}
          </select>
        </label>
        <label>
          <span>{t.folder}</span>
          <input value={filters.value.workspace} placeholder={String(machine.value.workspace ?? "")} onChange={filter("workspace")} />
        </label>
        <label>
          <span>{t.host}</span>
          <input value={filters.value.host} placeholder="*.example.org" onChange={filter("host")} />
        </label>
      </div>
      <ol class="timeline">
        {displayed.map((each) => {
          const isOpen = opened.value?.id === each.id;
          return (
            <li key={each.id} class={each.status}>
              <button type="button" class="row" aria-expanded={isOpen} onClick={() => (isOpen ? (opened.value = null) : void attempt(open(each.id)))}>
                <span class="mono">{each.seq}</span>
                <time dateTime={each.timestamp}>{when(each.timestamp)}</time>
                <b>{visible(each.tool)}</b>
                <span class="status">{each.status}</span>
                <span class="faint">{visible(each.reason)}</span>
              </button>
              {isOpen ? <Opened detail={opened.value!.detail} /> : null}
            </li>
          );
        })}
      </ol>
      {opened.value && !displayed.some((each) => each.id === opened.value!.id) ? <Opened detail={opened.value.detail} /> : null}
      {cursor.value ? (
        <button type="button" onClick={() => void attempt(load(true))}>
          {t.more}
        </button>
      ) : null}
    </section>
  );
}
