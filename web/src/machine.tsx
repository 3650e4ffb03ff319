// How the machine stands: models, servers, rules, knowledge, log.

import { signal } from "@preact/signals";
import type { ComponentChildren, JSX } from "preact";
import { useEffect } from "preact/hooks";
import { call } from "./api";
import { Markdown } from "./markdown";
import { attempt, loadMachine, machine, models } from "./state";
import { bytes, number, t, visible, when } from "./text";

interface Loaded {
  name: string;
  state: string;
  running: number;
  context_size: number;
  prompt_tokens: number;
  cached_tokens: number;
  completion_tokens: number;
}
interface Server {
  alias: string;
  link: string;
  tools: number;
  problem: string;
  calls: number;
}
interface Rule {
  id: string;
  tool: string;
  pattern: string;
  expires_at: string;
}
interface Entry {
  name: string;
  keywords: string[];
  size: number;
  text: string;
}

const loaded = signal<Loaded[]>([]);
const servers = signal<Server[]>([]);
const rules = signal<Rule[]>([]);
const entries = signal<Entry[]>([]);
const read = signal<Entry | null>(null);
const log = signal<{ at: string; level: string; text: string }[]>([]);
const working = signal("");

async function load(): Promise<void> {
  const items = async <T,>(method: string): Promise<T[]> => (await call<{ items: T[] }>(method)).items;
  const asked = await Promise.allSettled([
    loadMachine(),
    call<typeof models.value>("list_models").then((found) => (models.value = found)),
    items<Loaded>("list_loaded_models").then((found) => (loaded.value = found)),
    items<Server>("list_mcp_servers").then((found) => (servers.value = found)),
    items<Rule>("list_rules").then((found) => (rules.value = found)),
    call<{ entries: Entry[] }>("list_knowledge").then((found) => (entries.value = found.entries)),
    call<{ items: typeof log.value }>("tail_log", { limit: 50 }).then((found) => (log.value = found.items)),
  ]);
  const failed = asked.find((each) => each.status === "rejected");
  if (failed) throw failed.reason;
}

async function work(name: string, method: string, params: object): Promise<void> {
  working.value = name;
  try {
    await attempt(call(method, params));
    await load();
  } finally {
    working.value = "";
  }
}

function Part({ title, children }: { title: string; children: ComponentChildren }): JSX.Element {
  return (
    <section class="part">
      <h2>{title}</h2>
      {children}
    </section>
  );
}

function Models(): JSX.Element {
  return (
    <Part title={t.model}>
      <ul>
        {models.value.items.map((each) => {
          const state = loaded.value.find((known) => known.name === each.name);
          return (
            <li>
              <b class="mono">{visible(each.name)}</b> <span class="faint">{bytes(each.size_bytes)}</span>
              {state ? (
                <span>
                  {" "}
                  {t.loaded} · ctx {number.format(state.context_size)} · {number.format(state.completion_tokens)} tok · cache{" "}
                  {state.prompt_tokens ? Math.round((100 * state.cached_tokens) / state.prompt_tokens) : 0} %
                </span>
              ) : null}
              <button
                type="button"
                class="quiet"
                disabled={working.value !== ""}
                onClick={() => void work(each.name, state ? "unload_model" : "load_model", { name: each.name })}
              >
                {working.value === each.name ? "…" : state ? t.unload : t.load}
              </button>
            </li>
          );
        })}
      </ul>
    </Part>
  );
}

function Facts(): JSX.Element {
  const status = machine.value;
  const facts: [string, unknown][] = [
    ["clawd", status.version],
    [t.mode, status.autonomy],
    ["sandbox", [status.sandbox, ...(status.sandbox_layers ?? [])].join(" ")],
    [t.proof, status.receipts],
    [t.chat, status.conversations],
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

function Knowledge(): JSX.Element {
  const open = async (entry: Entry) => {
    const found = await call<{ entries: Entry[] }>("load_knowledge", { keywords: entry.name });
    read.value = found.entries[0] ?? null;
  };
  return (
    <Part title={t.knowledge}>
      {entries.value.length ? null : <p>{t.none}</p>}
      <ul>
        {entries.value.map((entry) => (
          <li>
            <button type="button" class="quiet" onClick={() => void attempt(open(entry))}>
              {visible(entry.keywords.join(" ") || entry.name)}
            </button>{" "}
            <span class="faint">{bytes(entry.size)}</span>
            {read.value?.name === entry.name ? <Markdown text={read.value.text} /> : null}
          </li>
        ))}
      </ul>
    </Part>
  );
}

export function Machine(): JSX.Element {
  useEffect(() => {
    void attempt(load());
    const timer = setInterval(() => void load().catch(() => undefined), 5_000);
    return () => clearInterval(timer);
  }, []);
  return (
    <section class="page" aria-label={t.machine}>
      <Facts />
      <Models />
      <Part title={t.servers}>
        {servers.value.length ? null : <p>{t.none}</p>}
        <ul>
          {servers.value.map((server) => (
            <li>
              <b class="mono">{visible(server.alias)}</b> {server.link} · {server.tools} {t.tool}
              {server.problem ? <span class="wrong"> {visible(server.problem)}</span> : null}
            </li>
          ))}
        </ul>
      </Part>
      <Part title={t.rules}>
        {rules.value.length ? null : <p>{t.none}</p>}
        <ul>
          {rules.value.map((rule) => (
            <li>
              <b>{visible(rule.tool)}</b> <span class="mono">{visible(rule.pattern)}</span> <span class="faint">→ {when(rule.expires_at)}</span>
              <button type="button" class="quiet" onClick={() => void work(rule.id, "revoke_rule", { rule_id: rule.id })}>
                {t.revoke}
              </button>
            </li>
          ))}
        </ul>
      </Part>
      <Knowledge />
      <Part title={t.log}>
        <pre class="plain log" tabIndex={0}>
          {log.value.map((line) => `${line.at.slice(11, 19)} ${line.level} ${visible(line.text)}\n`)}
        </pre>
      </Part>
    </section>
  );
}
