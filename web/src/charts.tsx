// What the daemon measures, as small charts over the last minutes; drawn here, from numbers alone.

import { signal } from "@preact/signals";
import type { JSX } from "preact";
import { call } from "./api";
import { loaded } from "./models";
import { bytes, number, t } from "./text";

interface Family {
  name: string;
  samples: { value: number }[];
}
interface Sample {
  at: number;
  generated: number;
  prompted: number;
  queue: number;
  memory: number;
}

const MOST = 120;
const WIDTH = 240;
const HEIGHT = 48;
const samples = signal<Sample[]>([]);

export async function loadMetrics(): Promise<void> {
  const { families } = await call<{ families: Family[] }>("show_metrics");
  const sum = (...names: string[]) =>
    families.filter((each) => names.includes(each.name)).reduce((all, each) => all + each.samples.reduce((part, one) => part + one.value, 0), 0);
  const now: Sample = {
    at: performance.now() / 1000,
    generated: sum("clawd_generated_tokens_total"),
    prompted: sum("clawd_prompt_tokens_total"),
    queue: sum("clawd_turns_queued", "clawd_model_queued"),
    memory: loaded.value.reduce((all, each) => all + each.size_bytes, 0),
  };
  samples.value = [...samples.value, now].slice(-MOST);
}

/** Return what a counter rose by in a second, between each two samples; a restart counts as none. */
export function rates(of: readonly { at: number; value: number }[]): number[] {
  return of.slice(1).map((each, before) => {
    const last = of[before]!;
    return each.at > last.at ? Math.max(0, each.value - last.value) / (each.at - last.at) : 0;
  });
}

function Chart({ label, values, written }: { label: string; values: number[]; written: (value: number) => string }): JSX.Element {
  const most = Math.max(...values, 1e-9);
  const x = (at: number) => (WIDTH * at) / Math.max(values.length - 1, 1);
  const y = (value: number) => HEIGHT - 2 - ((HEIGHT - 4) * value) / most;
  const now = values.at(-1) ?? 0;
  const line = values.map((value, at) => `${x(at).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
  return (
    <figure class="chart">
      <figcaption>
        {label} <b class="mono">{written(now)}</b>
      </figcaption>
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label={`${label}: ${written(now)}, ${t.most} ${written(Math.max(...values, 0))}`}>
        <polyline points={line} fill="none" stroke="currentColor" stroke-width="1.5" vector-effect="non-scaling-stroke" />
      </svg>
    </figure>
  );
}

export function Charts(): JSX.Element {
  const all = samples.value;
  const counter = (name: "generated" | "prompted") => rates(all.map((each) => ({ at: each.at, value: each[name] })));
  const speed = (value: number) => `${number.format(Math.round(10 * value) / 10)} tok/s`;
  return (
    <div class="charts">
      <Chart label={t.generated} values={counter("generated")} written={speed} />
      <Chart label={t.prompted} values={counter("prompted")} written={speed} />
      <Chart label={t.queue} values={all.map((each) => each.queue)} written={(value) => number.format(value)} />
      <Chart label={t.inMemory} values={all.map((each) => each.memory)} written={bytes} />
    </div>
  );
}
