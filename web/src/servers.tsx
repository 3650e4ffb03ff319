// MCP servers: how they are, what they offer in their own words, and how the config names them.

import { signal } from "@preact/signals";
import type { JSX } from "preact";
import { useRef } from "preact/hooks";
import { call, post } from "./api";
import { attempt } from "./state";
import { number, t, visible } from "./text";

interface Server {
  alias: string;
  link: string;
  transport: string;
  address: string;
  problem: string;
  reach_problem: string;
  tools: number;
  tokens: number;
  calls: number;
  failures: number;
  changed: string[];
  waiting: string[];
}
interface Tool {
  name: string;
  alias: string;
  tool: string;
  short: string;
  risk: string;
  is_changed: boolean;
  is_new: boolean;
}
interface Shown {
  description: string;
  parameters: object;
  hints: Record<string, boolean>;
}
interface Differences {
  offer: string;
  items: { tool: string; kind: string; was: string; now: string }[];
}

const LINKS: Record<string, string> = { off: t.off, ready: t.idle, connecting: t.connecting, waiting: t.waiting };
const MOST = 20_000;
const servers = signal<Server[]>([]);
const tools = signal<{ alias: string; items: Tool[]; left: { tool: string; reason: string }[] } | null>(null);
const shown = signal<{ name: string; of: Shown } | null>(null);
const differences = signal<(Differences & { alias: string }) | null>(null);
const working = signal("");

export async function loadServers(): Promise<void> {
  servers.value = (await call<{ items: Server[] }>("list_mcp_servers")).items;
}

async function work(alias: string, act: () => Promise<unknown>): Promise<void> {
  working.value = alias;
  try {
    await attempt(act());
    await attempt(loadServers());
    if (tools.value?.alias === alias) await attempt(showTools(alias));
  } finally {
    working.value = "";
  }
}

async function showTools(alias: string): Promise<void> {
  const found = await call<{ items: Tool[]; left_out: { tool: string; reason: string }[] }>("list_mcp_tools", { alias });
  tools.value = { alias, items: found.items, left: found.left_out };
}

async function showTool(each: Tool): Promise<void> {
  shown.value = { name: each.name, of: await call<Shown>("show_mcp_tool", { alias: each.alias, tool: each.tool }) };
}

async function showDifferences(alias: string): Promise<void> {
  differences.value = { alias, ...(await call<Differences>("diff_mcp", { alias })) };
}

// What a server says of its tools is text of a third party: text it stays, with its beginning.
function Words({ text }: { text: string }): JSX.Element {
  return (
    <pre class="plain" tabIndex={0} dir="auto">
      {visible(text.slice(0, MOST))}
      {text.length > MOST ? `\n… ${t.tooLong}` : null}
    </pre>
  );
}

function OneTool({ each }: { each: Tool }): JSX.Element {
  const isOpen = shown.value?.name === each.name;
  return (
    <li>
      <button type="button" class="quiet mono" aria-expanded={isOpen} onClick={() => (isOpen ? (shown.value = null) : void attempt(showTool(each)))}>
        {visible(each.tool)}
      </button>
      <span class="tag">{each.risk}</span>
      {each.is_changed ? <span class="tag warn">{t.changed}</span> : null}
      {each.is_new ? <span class="tag warn">{t.isNew}</span> : null} <span class="faint break">{visible(each.short.slice(0, 300))}</span>
      {isOpen && shown.value ? (
        <>
          <p class="faint">{t.serverSays}</p>
          <Words text={shown.value.of.description} />
          <Words text={JSON.stringify(shown.value.of.parameters, null, 2)} />
        </>
      ) : null}
    </li>
  );
}

function Tools(): JSX.Element | null {
  const of = tools.value;
  if (!of) return null;
  return (
    <ul class="inner">
      {of.items.length + of.left.length ? null : <li>{t.none}</li>}
      {of.items.map((each) => (
        <OneTool key={each.name} each={each} />
      ))}
      {of.left.map((each) => (
        <li class="wrong break">
          {visible(each.tool.slice(0, 200))}: {visible(each.reason.slice(0, 500))}
        </li>
      ))}
    </ul>
  );
}

function Changed(): JSX.Element | null {
  const of = differences.value;
  if (!of) return null;
  const accept = () => {
    differences.value = null;
    void work(of.alias, () => call("accept_mcp", { alias: of.alias, offer: of.offer }));
  };
  return (
    <div class="inner">
      {of.items.map((each) => (
        <>
          <p>
            <b class="mono">{visible(each.tool)}</b> <span class="tag warn">{each.kind === "new" ? t.isNew : t.changed}</span>
          </p>
          {each.was ? <Words text={`− ${each.was}`} /> : null}
          <Words text={`+ ${each.now}`} />
        </>
      ))}
      <button type="button" onClick={accept}>
        {t.acceptTools}
      </button>
      <button type="button" class="quiet" onClick={() => (differences.value = null)}>
        {t.cancel}
      </button>
    </div>
  );
}

function OneServer({ of }: { of: Server }): JSX.Element {
  const { alias } = of;
  const isOff = of.link === "off";
  const isOpen = tools.value?.alias === alias;
  const act = (label: string, method: () => Promise<unknown>) => (
    <button type="button" class="quiet" disabled={working.value !== ""} aria-label={`${label} ${alias}`} onClick={() => void work(alias, method)}>
      {label}
    </button>
  );
  const remove = async () => {
    if (confirm(`${t.removeServer} ${alias}`)) await post("/clawctl/remove_server", { alias });
  };
  return (
    <li data-server={alias}>
      <span class={`dot ${of.link}`} aria-hidden="true" /> <b class="mono">{visible(alias)}</b> {LINKS[of.link] ?? of.link} · {of.tools} {t.tools} ·{" "}
      {number.format(of.tokens)} tok · {number.format(of.calls)} {t.calls}
      {of.failures ? <span class="wrong"> ({number.format(of.failures)} ✗)</span> : null}
      <span class="acts">
        <button
          type="button"
          class="quiet"
          aria-expanded={isOpen}
          aria-label={`${t.tools} ${alias}`}
          onClick={() => (isOpen ? (tools.value = null) : void attempt(showTools(alias)))}
        >
          {t.tools}
        </button>
        {act(t.test, () => call("connect_mcp", { alias }))}
        {act(isOff ? t.switchOn : t.switchOff, () => post("/clawctl/switch_server", { alias, on: isOff }))}
        {act(t.remove, remove)}
      </span>
      <p class="mono faint break">{visible(of.address || of.transport)}</p>
      {[of.problem, of.reach_problem].map((text) => (text ? <p class="wrong break">{visible(text)}</p> : null))}
      {of.changed.length + of.waiting.length ? (
        <p class="break">
          {t.toolsChanged}: {visible([...of.changed, ...of.waiting].join(", ").slice(0, 300))}{" "}
          <button type="button" class="quiet" onClick={() => void attempt(showDifferences(alias))}>
            {t.details}
          </button>
        </p>
      ) : null}
      {differences.value?.alias === alias ? <Changed /> : null}
      {isOpen ? <Tools /> : null}
    </li>
  );
}

/** Return the words of a command line, with quotes as a shell has them. */
export function wordsOf(line: string): string[] {
  return Array.from(line.matchAll(/"((?:\\.|[^"\\])*)"|'([^']*)'|(\S+)/g), ([, double, single, plain]) =>
    double === undefined ? (single ?? plain ?? "") : double.replace(/\\(.)/g, "$1"),
  );
}

function Add(): JSX.Element {
  const form = useRef<HTMLFormElement>(null);
  const add = async () => {
    const given = new FormData(form.current!);
    const text = (name: string) => String(given.get(name) ?? "").trim();
    const where = text("where");
    const isUrl = /^https?:\/\//.test(where);
    await post("/clawctl/add_server", {
      alias: text("alias"),
      ...(isUrl ? { url: where } : { command: wordsOf(where), hosts: text("hosts").split(/[\s,]+/).filter(Boolean), workspace: text("workspace") }),
    });
    form.current?.reset();
  };
  return (
    <details>
      <summary>{t.addServer}</summary>
      <form
        class="stacked"
        ref={form}
        onSubmit={(event) => {
          event.preventDefault();
          void work("", add);
        }}
      >
        <label>
          {t.alias} <input name="alias" required pattern="[a-z0-9][a-z0-9\-]*" maxLength={32} />
        </label>
        <label>
          {t.addressOrProgram} <input name="where" required placeholder="https://… · mcp-server-files ~/notes" />
        </label>
        <label>
          {t.hosts} <input name="hosts" placeholder="api.example.org:443" />
        </label>
        <label>
          workspace{" "}
          <select name="workspace">
            {["read", "none", "write"].map((word) => (
              <option>{word}</option>
            ))}
          </select>
        </label>
        <p class="faint">{t.addServerHint}</p>
        <button type="submit" disabled={working.value !== ""}>
          {t.add}
        </button>
      </form>
    </details>
  );
}

export function Servers(): JSX.Element {
  return (
    <>
      {servers.value.length ? null : <p>{t.none}</p>}
      <ul>
        {servers.value.map((each) => (
          <OneServer key={each.alias} of={each} />
        ))}
      </ul>
      <Add />
    </>
  );
}
