// Procedures and their runs: how far each is, and what a person answers to it.

import { signal } from "@preact/signals";
import type { JSX } from "preact";
import { call } from "./api";
import { attempt } from "./state";
import { t, visible, when } from "./text";

interface Sop {
  name: string;
  state: string;
  description: string;
  digest: string;
  problems: { line: number; key: string; text: string }[];
}
interface Review {
  sop: Sop;
  inputs: { name: string; type: string; description: string; default: unknown }[];
  steps: { id: string; kind: string; does: string; when: string; foreach: string; on_failure: string; compensation: string }[];
  compensations: { id: string; kind: string; does: string }[];
  changes: string[];
  mermaid: string;
}
interface Run {
  id: string;
  name: string;
  status: string;
  step: string;
  reason: string;
  origin: string;
  created_at: string;
}
interface Report {
  run: Run;
  steps: { id: string; kind: string; status: string; attempts: number; output: string; error: string; receipt_id: string; done: number; items: number }[];
  output: string;
}

const MOST = 20_000;
const LISTED = 20;
const STATUS: Record<string, string> = {
  running: t.running,
  waiting: t.waiting,
  unsure: t.unsure,
  stopped: t.stopped,
  succeeded: t.allowed,
  failed: t.failed,
  cancelled: t.cancelled,
};
const ENDED = ["succeeded", "failed", "cancelled"];
const sops = signal<Sop[]>([]);
const runs = signal<Run[]>([]);
const looked = signal<Review | null>(null);
const shown = signal<Report | null>(null);

export async function loadSops(): Promise<void> {
  const found = await call<{ items: Run[] }>("list_sop_runs", { limit: LISTED });
  sops.value = (await call<{ items: Sop[] }>("list_sops")).items;
  runs.value = found.items;
  if (shown.value) await look(shown.value.run.id);
}

async function look(run: string): Promise<void> {
  shown.value = await call<Report>("show_sop_run", { run });
}

async function act(method: string, params: object): Promise<void> {
  await attempt(call<Report>(method, params).then((found) => (shown.value = found)));
  await attempt(loadSops());
}

async function review(name: string): Promise<void> {
  looked.value = await call<Review>("inspect_sop", { name });
}

async function enable(sop: Sop): Promise<void> {
  await attempt(call("enable_sop", { name: sop.name, digest: sop.digest }));
  looked.value = null;
  await attempt(loadSops());
}

// What a procedure or a step says is text of somebody else: text it stays, with its beginning.
function Words({ text }: { text: string }): JSX.Element | null {
  if (!text) return null;
  return (
    <pre class="plain" tabIndex={0} dir="auto">
      {visible(text.slice(0, MOST))}
      {text.length > MOST ? `\n… ${t.tooLong}` : null}
    </pre>
  );
}

function Start({ of }: { of: Review }): JSX.Element {
  return (
    <form
      class="stacked"
      onSubmit={(event) => {
        event.preventDefault();
        const given = new FormData(event.currentTarget);
        const inputs = Object.fromEntries([...given].filter(([, value]) => value !== ""));
        void act("run_sop", { name: of.sop.name, inputs, detach: true });
      }}
    >
      {of.inputs.map((each) => (
        <label key={each.name}>
          {visible(each.name)} <span class="faint">{visible(each.description)}</span>
          <input name={each.name} required={each.default === null} placeholder={each.default === null ? each.type : String(each.default)} />
        </label>
      ))}
      <button type="submit">{t.runSop}</button>
    </form>
  );
}

function Looked({ of }: { of: Review }): JSX.Element {
  return (
    <div class="inner">
      {of.sop.problems.map((each) => (
        <p class="wrong break">
          {each.line || null} {visible(`${each.key} ${each.text}`)}
        </p>
      ))}
      {of.changes.length ? <Words text={`${t.changed}:\n${of.changes.join("\n")}`} /> : null}
      <ol>
        {[...of.steps, ...of.compensations].map((each) => (
          <li key={each.id} class="break">
            <b>{visible(each.id)}</b> <span class="tag">{each.kind}</span> <span class="mono">{visible(each.does)}</span>
          </li>
        ))}
      </ol>
      <details>
        <summary>Mermaid</summary>
        <Words text={of.mermaid} />
      </details>
      {of.sop.state === "ready" ? <Start of={of} /> : null}
      {of.sop.state === "untrusted" || of.sop.state === "changed" ? (
        <button type="button" onClick={() => void enable(of.sop)}>
          {t.enableSop}
        </button>
      ) : null}
    </div>
  );
}

function Answers({ of }: { of: Report }): JSX.Element | null {
  const { id, status } = of.run;
  if (ENDED.includes(status)) return null;
  const asks = status === "waiting" && of.steps.some((each) => each.kind === "approval" && each.status === "waiting");
  const answers: [string, string][] = asks
    ? [
        ["approve", t.approve],
        ["deny", t.deny],
      ]
    : status === "unsure"
      ? [
          ["repeat", t.repeat],
          ["done", t.itHappened],
          ["failed", t.itFailed],
        ]
      : status === "running"
        ? []
        : [["", t.goOn]];
  return (
    <p class="choices-row">
      {answers.map(([answer, label]) => (
        <button key={answer} type="button" onClick={() => void act("resume_sop", { run: id, answer, detach: true })}>
          {label}
        </button>
      ))}
      <button type="button" class="quiet" onClick={() => void act("cancel_sop", { run: id })}>
        {t.cancel}
      </button>
    </p>
  );
}

function Steps({ of }: { of: Report }): JSX.Element {
  return (
    <div class="inner">
      <Words text={of.run.reason} />
      <ol>
        {of.steps.map((each) => (
          <li key={each.id} class="break">
            <b>{visible(each.id)}</b> <span class="tag">{each.kind}</span>{" "}
            <span class="tag">{each.items ? `${each.status} ${each.done}/${each.items}` : each.status}</span>{" "}
            <span class="mono faint">{each.receipt_id}</span>
            {each.output || each.error ? (
              <details>
                <summary>{each.error ? t.failed : t.output}</summary>
                <Words text={each.error || each.output} />
              </details>
            ) : null}
          </li>
        ))}
      </ol>
      <Answers of={of} />
    </div>
  );
}

export function Sops(): JSX.Element {
  const toggle = (isOpen: boolean, close: () => void, open: () => Promise<void>) => () => (isOpen ? close() : void attempt(open()));
  return (
    <>
      {sops.value.length ? null : <p>{t.none}</p>}
      <ul>
        {sops.value.map((each) => {
          const isOpen = looked.value?.sop.name === each.name;
          return (
            <li key={each.name} data-sop={each.name}>
              <button type="button" class="quiet" aria-expanded={isOpen} onClick={toggle(isOpen, () => (looked.value = null), () => review(each.name))}>
                {visible(each.name)}
              </button>
              <span class="tag">{each.state}</span> <span class="faint break">{visible(each.description.slice(0, 300))}</span>
              {isOpen && looked.value ? <Looked of={looked.value} /> : null}
            </li>
          );
        })}
      </ul>
      {runs.value.length ? <h3>{t.sopRuns}</h3> : null}
      <ul>
        {runs.value.map((each) => {
          const isOpen = shown.value?.run.id === each.id;
          return (
            <li key={each.id} data-run={each.id}>
              <button type="button" class="quiet" aria-expanded={isOpen} onClick={toggle(isOpen, () => (shown.value = null), () => look(each.id))}>
                {visible(each.name)} · {when(each.created_at)}
              </button>
              <span class={ENDED.includes(each.status) ? "tag" : "tag warn"}>{STATUS[each.status] ?? each.status}</span>{" "}
              <span class="faint break">{visible(`${each.step} · ${each.origin}`.slice(0, 200))}</span>
              {isOpen && shown.value ? <Steps of={shown.value} /> : null}
            </li>
          );
        })}
      </ul>
    </>
  );
}
