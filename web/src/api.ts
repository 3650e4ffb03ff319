// The daemon's methods over the gateway, and the one stream of events.

import { signal } from "@preact/signals";
import { t } from "./text";
import type { Event } from "./wire";

/** The code of a call that the daemon was not there for: a bar says so as long as it is true. */
export const UNREACHABLE = "unreachable";

const KEY_NAME = "clawd-key";
const FIRST_WAIT_MS = 250;
const LONGEST_WAIT_MS = 5_000;
const SILENCE_MS = 15_000;

/** How the page stands to the daemon. `locked`: it wants a key. */
export const link = signal<"connecting" | "open" | "lost" | "locked">("connecting");

export class MethodError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
  ) {
    super(message);
  }
}

function setKey(key: string): void {
  if (key) localStorage.setItem(KEY_NAME, key);
  else localStorage.removeItem(KEY_NAME);
}

const LINK = /clawd_pagelogin_[0-9a-f]{64}/;

/** Take the key of the person, or a one-time link, which is changed for one. */
export async function enter(text: string): Promise<void> {
  const once = LINK.exec(text)?.[0];
  setKey(once ? await keyOf(once) : text.trim());
  link.value = "connecting";
}

/** Log in where the address of the page is a one-time link; the secret leaves the address at once. */
export async function enterByAddress(): Promise<void> {
  const { hash } = location;
  if (!hash.startsWith("#login=")) return;
  history.replaceState(null, "", location.pathname);
  if (LINK.test(hash)) await enter(hash);
}

async function keyOf(once: string): Promise<string> {
  const wanted = { method: "POST", headers: { "X-Clawd-Page": "1", Authorization: `Bearer ${once}` }, cache: "no-store" } as const;
  const answer = await fetch("/page/login", wanted).catch(() => {
    throw new MethodError(0, "", t.lost);
  });
  if (answer.status === 401) throw new MethodError(401, "", t.linkOver);
  if (!answer.ok) throw await failure(answer);
  return ((await answer.json()) as { key: string }).key;
}

function headers(): Record<string, string> {
  const key = localStorage.getItem(KEY_NAME);
  return { "X-Clawd-Page": "1", ...(key ? { Authorization: `Bearer ${key}` } : {}) };
}

async function failure(answer: Response): Promise<MethodError> {
  if (answer.status === 401) link.value = "locked";
  let code = "";
  let message = `${answer.status} ${answer.statusText}`;
  try {
    const { error } = (await answer.json()) as { error?: string | { code?: string; message?: string } };
    if (typeof error === "object") code = String(error.code ?? "");
    message = (typeof error === "string" ? error : error?.message) ?? message;
  } catch {
    // no JSON: the status says what there is to say
  }
  return new MethodError(answer.status, code, message);
}

/** Send a body to a route of the gateway and return its answer. */
export async function send(method: string, path: string, body: object, signal?: AbortSignal): Promise<Response> {
  const options: RequestInit = {
    method,
    headers: { ...headers(), "Content-Type": "application/json" },
    body: JSON.stringify(body),
    cache: "no-store",
    ...(signal ? { signal } : {}),
  };
  const answer = await fetch(path, options).catch(() => {
    throw new MethodError(0, UNREACHABLE, t.lost);
  });
  if (!answer.ok) throw await failure(answer);
  return answer;
}

/** Post to a route of the gateway. */
export async function post<T>(path: string, body: object): Promise<T> {
  return (await (await send("POST", path, body)).json()) as T;
}

/** Post to a route that answers in lines of JSON, and yield them as they come. */
export async function* postLines<T>(path: string, body: object, signal: AbortSignal): AsyncGenerator<T> {
  const answer = await send("POST", path, body, signal);
  const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) if (line) yield JSON.parse(line) as T;
  }
}

/** Call a method of the daemon, by the name it has on the control socket. */
export function call<T>(method: string, params: object = {}): Promise<T> {
  return post<T>(`/methods/${method}`, params);
}

/** Follow the daemon's events for as long as the page lives.
 *
 * After a break it goes on behind the last event seen; where the daemon no longer has what came
 * in between, `resync` is the first event.
 */
export async function follow(take: (event: Event) => void): Promise<never> {
  let last = "";
  let wait = FIRST_WAIT_MS;
  for (;;) {
    try {
      const answer = await open(last);
      link.value = "open";
      wait = FIRST_WAIT_MS;
      if (!last) take({ type: "resync" });
      for await (const [id, event] of events(answer)) {
        if (id) last = id;
        take(event);
      }
    } catch (error) {
      if (error instanceof MethodError && error.status === 401) await unlocked();
    }
    if (link.value !== "locked") link.value = "lost";
    await new Promise((done) => setTimeout(done, wait));
    wait = Math.min(2 * wait, LONGEST_WAIT_MS);
  }
}

async function open(last: string): Promise<Response> {
  const resume: Record<string, string> = last ? { "Last-Event-ID": last } : {};
  const answer = await fetch("/events", { headers: { ...headers(), ...resume }, cache: "no-store" });
  if (!answer.ok) throw await failure(answer);
  return answer;
}

function unlocked(): Promise<void> {
  link.value = "locked";
  return new Promise((done) => {
    const stop = link.subscribe((value) => {
      if (value === "locked") return;
      queueMicrotask(() => stop());
      done();
    });
  });
}

async function* events(answer: Response): AsyncGenerator<[string, Event]> {
  const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await withinSilence(reader.read());
      if (done) return;
      rest += value;
      let end = rest.indexOf("\n\n");
      while (end >= 0) {
        const found = parsed(rest.slice(0, end));
        rest = rest.slice(end + 2);
        if (found) yield found;
        end = rest.indexOf("\n\n");
      }
    }
  } finally {
    void reader.cancel().catch(() => undefined);
  }
}

// The daemon sends a comment each second: a longer silence is a connection that is gone.
async function withinSilence<T>(work: Promise<T>): Promise<T> {
  let timer = 0;
  const silence = new Promise<never>((_, fail) => {
    timer = setTimeout(() => fail(new Error("silence")), SILENCE_MS) as unknown as number;
  });
  try {
    return await Promise.race([work, silence]);
  } finally {
    clearTimeout(timer);
  }
}

function parsed(block: string): [string, Event] | null {
  let id = "";
  let data = "";
  for (const line of block.split("\n")) {
    if (line.startsWith("id: ")) id = line.slice(4);
    else if (line.startsWith("data: ")) data += line.slice(6);
  }
  return data ? [id, JSON.parse(data) as Event] : null;
}
