// How the machine stands: models, servers, rules, knowledge, log.

import { signal } from "@preact/signals";
import type { ComponentChildren, JSX } from "preact";
import { useEffect } from "preact/hooks";
import { call } from "./api";
import { Charts, loadMetrics } from "./charts";
import { Knowledge, loadKnowledge } from "./knowledge";
import { loadModels, Models } from "./models";
import { loadServers, Servers } from "./servers";
import { loadSops, Sops } from "./sops";
import { attempt, loadMachine, machine } from "./state";
import { bytes, number, t, visible, when } from "./text";

interface Rule {
  id: string;
  tool: string;
  pattern: string;
  expires_at: string;
}
interface MemoryCheck {
  path: string;
  used_bytes: number;
  problems: string[];
}

const EVERY_MS = 5_000;
const rules = signal<Rule[]>([]);
const memory = signal<MemoryCheck | null>(null);
const log = signal<{ at: string; level: string; text: string }[]>([]);

async function load(): Promise<void> {
  const asked = await Promise.allSettled([
    loadMachine(),
    loadModels(),
    loadServers(),
    loadSops(),
    loadMetrics(),
    loadRules(),
    call<{ items: typeof log.value }>("tail_log", { limit: 50 }).then((found) => (log.value = found.items)),
  ]);
  const failed = asked.find((each) => each.status === "rejected");
  if (failed) throw failed.reason;
}

async function loadRules(): Promise<void> {
  rules.value = (await call<{ items: Rule[] }>("list_rules")).items;
}

async function revoke(rule: Rule): Promise<void> {
  await call("revoke_rule", { rule_id: rule.id });
  await loadRules();
}

function Part({ title, children }: { title: string; children: ComponentChildren }): JSX.Element {
  return (
    <section class="part" aria-label={title}>
      <h2>{title}</h2>
      {children}
    </section>
  );
}

function Facts(): JSX.Element {
  const status = machine.value;
  const facts: [string, unknown][] = [
    ["clawd", status.version],
    [t.mode, status.autonomy],
    ["sandbox", [status.sandbox, ...(status.sandbox_layers ?? [])].join(" ")],
    [t.proof, status.receipts],
    [t.conversations, status.conversations],
    ["workspace", status.workspace],
    ["home", status.home],
    ["config", status.config],
    ["problem", status.problem || status.receipts_problem || status.rules_problem],
  ];
  return (
    <dl>
      {facts.map(([name, value]) =>
        value === undefined || value === "" ? null : (
          <>
            <dt>{name}</dt>
            <dd class="mono break">{visible(String(value))}</dd>
          </>
        ),
      )}
    </dl>
  );
}

function Memory(): JSX.Element {
  const meaning = machine.value.meaning as { model: string; indexed: number; messages: number; problem: string } | null;
  const check = async () => {
    memory.value = await call<MemoryCheck>("check_memory");
  };
  return (
    <>
      <p>
        {number.format(Number(machine.value.conversations ?? 0))} {t.conversations}
        {meaning ? ` · ${t.byMeaning}: ${number.format(meaning.indexed)} / ${number.format(meaning.messages)} (${visible(meaning.model)})` : null}{" "}
        <button type="button" class="quiet" onClick={() => void attempt(check())}>
          {t.check}
        </button>
      </p>
      {meaning?.problem ? <p class="wrong">{visible(meaning.problem)}</p> : null}
      {memory.value ? (
        <p role="status" class={memory.value.problems.length ? "wrong break" : "break"}>
          {memory.value.problems.length ? visible(memory.value.problems.join("; ")) : t.isGood} · {bytes(memory.value.used_bytes)} ·{" "}
          <span class="mono faint">{visible(memory.value.path)}</span>
        </p>
      ) : null}
    </>
  );
}

function Rules(): JSX.Element {
  return (
    <>
      {rules.value.length ? null : <p>{t.none}</p>}
      <ul>
        {rules.value.map((rule) => (
          <li key={rule.id}>
            <b>{visible(rule.tool)}</b> <span class="mono">{visible(rule.pattern)}</span> <span class="faint">→ {when(rule.expires_at)}</span>
            <button type="button" class="quiet" onClick={() => void attempt(revoke(rule))}>
              {t.revoke}
            </button>
          </li>
        ))}
      </ul>
    </>
  );
}

export function Machine(): JSX.Element {
  useEffect(() => {
    void attempt(load());
    void attempt(loadKnowledge());
    const timer = setInterval(() => void load().catch(() => undefined), EVERY_MS);
    return () => clearInterval(timer);
  }, []);
  return (
    <section class="page" aria-label={t.machine}>
      <Facts />
      <Part title={t.metrics}>
        <Charts />
      </Part>
      <Part title={t.models}>
        <Models />
      </Part>
      <Part title={t.servers}>
        <Servers />
      </Part>
      <Part title={t.sops}>
        <Sops />
      </Part>
      <Part title={t.rules}>
        <Rules />
      </Part>
      <Part title={t.knowledge}>
        <Knowledge />
      </Part>
      <Part title={t.memory}>
        <Memory />
      </Part>
      <Part title={t.log}>
        <pre class="plain log" tabIndex={0}>
          {log.value.map((line) => `${line.at.slice(11, 19)} ${line.level} ${visible(line.text)}\n`)}
        </pre>
      </Part>
    </section>
  );
}
