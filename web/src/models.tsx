// Models: those that are here, what each can do, those that would fit, and one that is on its way.

import { signal } from "@preact/signals";
import type { JSX } from "preact";
import { useRef } from "preact/hooks";
import { call, post, postLines, send } from "./api";
import { attempt, models, reportError } from "./state";
import { bytes, number, t, visible } from "./text";

export interface Loaded {
  name: string;
  state: string;
  running: number;
  context_size: number;
  size_bytes: number;
  prompt_tokens: number;
  cached_tokens: number;
  completion_tokens: number;
}
interface Detail {
  name: string;
  title: string;
  architecture: string;
  parameters: number;
  quantization: string;
  licence: string;
  context_size: number;
  template_family: string;
  tools: boolean;
  reasoning: boolean;
  embeddings: boolean;
  vision: string;
  vision_pin: string;
  vision_sha256: string;
  pin: string;
  source: string;
  path: string;
  reads: string;
}
interface Fit {
  name: string;
  size_gb: number;
  memory_gb: number;
  place: string;
  tokens_per_s: number;
  good_for: string[];
  licence: string;
}
interface Pull {
  name: string;
  status: string;
  done: number;
  total: number;
  stop: AbortController;
}

export const loaded = signal<Loaded[]>([]);
const details = signal<Record<string, Detail>>({});
const fits = signal<Fit[] | null>(null);
const pull = signal<Pull | null>(null);
const working = signal("");

export async function loadModels(): Promise<void> {
  const [all, inMemory] = await Promise.all([
    call<typeof models.value>("list_models"),
    call<{ items: Loaded[] }>("list_loaded_models"),
  ]);
  models.value = all;
  loaded.value = inMemory.items;
}

async function work(name: string, act: () => Promise<unknown>): Promise<void> {
  working.value = name;
  try {
    await attempt(act());
    await attempt(loadModels());
  } finally {
    working.value = "";
  }
}

async function toggleDetail(name: string): Promise<void> {
  const { [name]: open, ...others } = details.value;
  details.value = open ? others : { ...others, [name]: await call<Detail>("show_model", { name }) };
}

async function begin(name: string): Promise<void> {
  const stop = new AbortController();
  const step = (more: Partial<Pull>) => (pull.value = { ...(pull.value ?? { name, status: "", done: 0, total: 0, stop }), ...more });
  step({});
  try {
    for await (const line of postLines<{ status?: string; total?: number; completed?: number; error?: string }>("/api/pull", { model: name }, stop.signal)) {
      if (line.error) throw new Error(line.error);
      step({ status: line.status ?? "", ...(line.total ? { total: line.total, done: line.completed ?? 0 } : {}) });
    }
  } catch (error) {
    if (!stop.signal.aborted) reportError(error);
  } finally {
    pull.value = null;
    await attempt(loadModels());
  }
}

function abilities(of: Detail): string[] {
  const found: [boolean, string][] = [
    [!of.embeddings, t.text],
    [of.tools, t.tools],
    [of.reasoning, t.reasoning],
    [of.vision !== "", t.vision],
    [of.embeddings, t.vectors],
  ];
  return found.filter(([has]) => has).map(([, word]) => word);
}

function Facts({ of }: { of: Detail }): JSX.Element {
  const facts: [string, string | number][] = [
    [t.model, [of.title, of.architecture, of.quantization].filter(Boolean).join(" · ")],
    ["parameters", of.parameters],
    ["context", of.context_size],
    [t.tools, of.tools ? of.template_family || "✓" : "–"],
    [t.vision, [of.vision || "–", of.vision_sha256, of.vision && of.vision_pin].filter(Boolean).join(" · ")],
    ["licence", of.licence],
    ["pin", of.pin],
    ["from", of.source],
    ["file", of.path],
    ["reads", of.reads],
  ];
  return (
    <dl class="facts">
      {facts.map(([name, value]) =>
        value ? (
          <>
            <dt>{name}</dt>
            <dd class="mono break">{visible(typeof value === "number" ? number.format(value) : value)}</dd>
          </>
        ) : null,
      )}
    </dl>
  );
}

function Model({ name, size, state }: { name: string; size: number; state: Loaded | undefined }): JSX.Element {
  const detail = details.value[name];
  const isBusy = working.value !== "";
  const remove = () => {
    if (confirm(`${t.removeModel} ${name}`)) void work(name, () => send("DELETE", "/api/delete", { model: name }));
  };
  const isDefault = models.value.default === name;
  return (
    <li data-model={name}>
      <b class="mono">{visible(name)}</b> <span class="faint">{bytes(size)}</span>
      {state ? (
        <span>
          {" "}
          {t.loaded} · ctx {number.format(state.context_size)} · {number.format(state.completion_tokens)} tok · cache{" "}
          {state.prompt_tokens ? Math.round((100 * state.cached_tokens) / state.prompt_tokens) : 0} %
        </span>
      ) : null}
      {detail ? abilities(detail).map((word) => <span class="tag">{word}</span>) : null}
      {isDefault ? <span class="tag good">{t.answers}</span> : null}
      <span class="acts">
        <button type="button" class="quiet" aria-expanded={detail !== undefined} aria-label={`${t.details} ${name}`} onClick={() => void attempt(toggleDetail(name))}>
          {t.details}
        </button>
        <button
          type="button"
          class="quiet"
          disabled={isBusy}
          aria-label={`${state ? t.unload : t.load} ${name}`}
          onClick={() => void work(name, () => call(state ? "unload_model" : "load_model", { name }))}
        >
          {working.value === name ? "…" : state ? t.unload : t.load}
        </button>
        {isDefault ? null : (
          <button type="button" class="quiet" disabled={isBusy} aria-label={`${t.useModel} ${name}`} onClick={() => void work(name, () => post("/clawctl/use_model", { name }))}>
            {t.useModel}
          </button>
        )}
        <button type="button" class="quiet" disabled={isBusy} aria-label={`${t.remove} ${name}`} onClick={remove}>
          {t.remove}
        </button>
      </span>
      {detail ? <Facts of={detail} /> : null}
    </li>
  );
}

function Pulling({ of }: { of: Pull }): JSX.Element {
  const share = of.total ? (100 * of.done) / of.total : 0;
  return (
    <p class="pulling" role="status">
      <b class="mono">{visible(of.name)}</b> {visible(of.status)} <progress aria-label={of.name} max={100} value={of.total ? share : undefined} />{" "}
      {of.total ? `${Math.floor(share)} % · ${bytes(of.done)} / ${bytes(of.total)}` : null}
      <button type="button" class="quiet" onClick={() => of.stop.abort()}>
        {t.cancel}
      </button>
    </p>
  );
}

export function Models(): JSX.Element {
  const field = useRef<HTMLInputElement>(null);
  const isPulling = pull.value !== null;
  const recommend = async () => {
    fits.value = (await post<{ models: Fit[] }>("/clawctl/recommend_models", {})).models;
  };
  return (
    <>
      <ul>
        {models.value.items.map((each) => (
          <Model key={each.name} name={each.name} size={each.size_bytes} state={loaded.value.find((known) => known.name === each.name)} />
        ))}
      </ul>
      <form
        class="inline"
        onSubmit={(event) => {
          event.preventDefault();
          const name = field.current?.value.trim();
          if (name) void begin(name);
        }}
      >
        <label>
          {t.pullModel} <input ref={field} placeholder="qwen3-4b · hf.co/ORG/REPO:Q4_K_M" />
        </label>
        <button type="submit" disabled={isPulling}>
          {t.pull}
        </button>
        <button type="button" class="quiet" disabled={working.value !== ""} onClick={() => void work("recommend", recommend)}>
          {working.value === "recommend" ? "…" : t.recommend}
        </button>
      </form>
      {pull.value ? <Pulling of={pull.value} /> : null}
      {fits.value?.length === 0 ? <p>{t.none}</p> : null}
      <ul>
        {(fits.value ?? []).map((fit) => (
          <li key={fit.name}>
            <b class="mono">{visible(fit.name)}</b>{" "}
            <span class="faint">
              {fit.size_gb.toFixed(1)} GB · {fit.memory_gb.toFixed(1)} GB {fit.place}
              {fit.tokens_per_s ? ` · ~${number.format(fit.tokens_per_s)} tok/s` : ""} · {fit.good_for.join(", ")} · {visible(fit.licence)}
            </span>
            <button type="button" class="quiet" disabled={isPulling} aria-label={`${t.pull} ${fit.name}`} onClick={() => void begin(fit.name)}>
              {t.pull}
            </button>
          </li>
        ))}
      </ul>
    </>
  );
}
