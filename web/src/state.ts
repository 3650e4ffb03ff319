// What the page knows: conversations, what waits for the person, how the machine stands.

import { computed, signal } from "@preact/signals";
import { call, enterByAddress, follow, MethodError, UNREACHABLE } from "./api";
import { t } from "./text";
import { Conversation, type QuestionEvent, type SentDocument, type SentPicture } from "./turn";
import type { ApprovalLine, CommandLine, ConversationDetail, ConversationLine, Event, FilledCommand } from "./wire";

export type Place = "chat" | "proof" | "machine";

export const place = signal<Place>("chat");
export const lines = signal<ConversationLine[]>([]);
export const linesCursor = signal("");
export const selected = signal<Conversation>(new Conversation(""));
export const approvals = signal<ApprovalLine[]>([]);
export const estop = signal(false);
export const problem = signal("");
/** What the config calls the page, and what its empty field says. */
export const named = signal({ title: "clawd", placeholder: t.placeholder });
export const machine = signal<Record<string, any>>({});
export const models = signal<{ items: { name: string; state: string; size_bytes: number }[]; default: string }>({
  items: [],
  default: "",
});

/** What the next message is sent with; empty leaves it as it is configured. */
export const choices = signal({ model: "", preset: "", mode: "", temperature: "" });
/** Whether a turn only looks until the person says yes to its plan. */
export const planFirst = signal(false);
/** The folder that the next new conversation works in; empty for the configured one. */
export const folder = signal("");

export const waiting = computed(() => approvals.value.filter((each) => !each.timed_out));

const conversations = new Map<string, Conversation>();
const LINES = 50;
const MESSAGES = 30; // as many as a frame or two can draw

function conversation(id: string): Conversation {
  let found = conversations.get(id);
  if (!found) conversations.set(id, (found = new Conversation(id)));
  return found;
}

const OPENED = "clawd-open";
const MOST_OPEN = 8;
/** The conversations that are open in this tab, in the order in which they were opened. */
export const opened = signal<Conversation[]>([]);

function keepOpen(next: Conversation[]): void {
  opened.value = next;
  sessionStorage.setItem(OPENED, JSON.stringify(next.map((each) => each.id)));
}

/** Hold a conversation open; the one opened first makes room. */
function hold(target: Conversation): void {
  if (!opened.value.includes(target)) keepOpen([...opened.value, target].slice(-MOST_OPEN));
}

/** A conversation is open no longer; the one beside it is displayed in its place. */
export async function close(id: string): Promise<void> {
  const at = opened.value.findIndex((each) => each.id === id);
  forget(id);
  if (selected.value.id === id) await select(opened.value[Math.min(at, opened.value.length - 1)]?.id ?? "");
}

export function forget(id: string): void {
  keepOpen(opened.value.filter((each) => each.id !== id));
}

// Those that were open before a reload; one that was deleted meanwhile is left out.
async function reopen(): Promise<void> {
  const ids = JSON.parse(sessionStorage.getItem(OPENED) ?? "[]") as string[];
  const asked = await Promise.allSettled(ids.map(loadLine));
  const isGone = (at: number) => {
    const each = asked[at]!;
    return each.status === "rejected" && each.reason instanceof MethodError && each.reason.status === 404;
  };
  const alive = ids.filter((_, at) => !isGone(at)).map(conversation);
  keepOpen([...alive, ...opened.value.filter((each) => !alive.includes(each))]);
}

async function loadLine(id: string): Promise<void> {
  const detail = await call<ConversationDetail>("show_conversation", { conversation_id: id, limit: 1 });
  conversation(id).line.value ??= detail.conversation;
}

export function reportError(error: unknown): void {
  if (error instanceof MethodError && error.code === UNREACHABLE) return;
  problem.value = error instanceof Error ? error.message : String(error);
}

/** Do something that may fail; what is wrong is displayed. */
export async function attempt<T>(work: Promise<T>): Promise<T | undefined> {
  try {
    return await work;
  } catch (error) {
    reportError(error);
    return undefined;
  }
}

type LinesPage = { items: ConversationLine[]; cursor: string };
let lineLoads = 0;

/** Load the conversations that were active last; those loaded before stay behind them. */
export async function loadLines(): Promise<void> {
  const mine = ++lineLoads;
  const page = await call<LinesPage>("list_conversations", { limit: LINES });
  if (mine !== lineLoads) return; // one that began later knows better
  const fresh = new Set(page.items.map((line) => line.id));
  const last = page.items.at(-1);
  const goesOn = page.cursor && last && lines.value.some((line) => fresh.has(line.id));
  const behind = goesOn ? lines.value.filter((line) => !fresh.has(line.id) && isBefore(line, last)) : [];
  lines.value = [...page.items, ...behind];
  if (!behind.length) linesCursor.value = page.cursor;
}

function isBefore(line: ConversationLine, other: ConversationLine): boolean {
  return line.updated_at < other.updated_at || (line.updated_at === other.updated_at && line.id < other.id);
}

/** Load the conversations behind those that are loaded. */
export async function loadMoreLines(): Promise<void> {
  const cursor = linesCursor.value;
  const page = await call<LinesPage>("list_conversations", { limit: LINES, cursor });
  if (cursor !== linesCursor.value) return;
  const known = new Set(lines.value.map((line) => line.id));
  lines.value = [...lines.value, ...page.items.filter((line) => !known.has(line.id))];
  linesCursor.value = page.cursor;
}

export async function loadApprovals(): Promise<void> {
  approvals.value = (await call<{ items: ApprovalLine[] }>("list_approvals")).items;
}

export async function loadMachine(): Promise<void> {
  const status = await call<Record<string, any>>("status");
  machine.value = status;
  estop.value = Boolean(status.estop);
}

/** The most bytes of a request, and so of a message with its files in base64. */
export const mostBytes = signal(8 << 20);

async function loadNames(): Promise<void> {
  type Http = { page_title?: string; page_placeholder?: string; max_body_bytes?: number };
  const { values } = await call<{ values: { channels?: { http?: Http } } }>("show_config");
  const http = values.channels?.http;
  mostBytes.value = http?.max_body_bytes || mostBytes.value;
  named.value = { title: http?.page_title || "clawd", placeholder: http?.page_placeholder || t.placeholder };
}

async function loadModelNames(): Promise<void> {
  models.value = await call("list_models");
}

function stored(target: Conversation, from: { before: number } | { cursor: string }): Promise<ConversationDetail> {
  return call("show_conversation", { conversation_id: target.id, limit: MESSAGES, ...from });
}

/** Load the newest messages of a conversation, as the daemon keeps them. */
async function reload(target: Conversation, isToEnd = false): Promise<void> {
  target.reloads += 1;
  target.loading += 1;
  const mine = target.reloads;
  const asked = Promise.all([
    call<{ items: { conversation_id: string; turn_id: string; client: string; question: QuestionEvent | null }[] }>("list_turns"),
    stored(target, { before: 0 }),
    call<{ markdown: string }>("show_plan", { conversation_id: target.id }),
  ]);
  const [running, newest, plan] = await asked.finally(() => (target.loading -= 1));
  if (mine !== target.reloads) return; // one that began later knows better
  const turn = running.items.find((each) => each.conversation_id === target.id);
  target.turnId = turn?.turn_id ?? "";
  target.client.value = turn?.client ?? "";
  target.load(newest, turn !== undefined, isToEnd);
  target.plan.value = plan.markdown;
  if (turn?.question) target.ask(turn.question);
}

/** Load what stands before or behind the messages that are held.
 *
 * `isReady` is called when it is there, just before it is displayed.
 */
export async function extend(target: Conversation, where: "older" | "newer", isReady: () => void): Promise<void> {
  const [first, last] = target.ends;
  const isOlder = where === "older";
  const page = await stored(target, isOlder ? { before: target.older.value } : { cursor: target.newer.value });
  const [firstNow, lastNow] = target.ends;
  if (isOlder ? first !== firstNow : last !== lastNow || !target.newer.value) return;
  isReady();
  if (isOlder) return target.prepend(page);
  target.append(page);
  if (!page.cursor) await reload(target);
}

/** Display the newest messages of a conversation. */
export async function toNewest(target: Conversation): Promise<void> {
  await attempt(reload(target, true));
}

/** Go to a conversation: to its newest message, or to one that a search found. */
export async function select(id: string, messageId = 0): Promise<void> {
  place.value = "chat";
  if (!id) {
    selected.value = new Conversation("");
    history.replaceState(null, "", "#");
    return;
  }
  const target = conversation(id);
  selected.value = target;
  hold(target);
  history.replaceState(null, "", `#${id}`);
  await attempt(messageId ? goTo(target, messageId) : reload(target, true));
}

async function goTo(target: Conversation, messageId: number): Promise<void> {
  await reload(target);
  if (!target.keyOf(messageId)) {
    const mine = target.reloads;
    const sides = [stored(target, { before: messageId + 1 }), stored(target, { cursor: String(messageId) })];
    const [until, behind] = await Promise.all(sides);
    if (mine !== target.reloads) return;
    target.open(until, behind);
  }
  target.hit.value = messageId;
}

/** The folder that the conversation which is displayed works in, or the next one will. */
function workspace(): string {
  return selected.value.line.value?.workspace || folder.value.trim();
}

/** Return the commands that a message may begin with, those that count first. */
export async function commands(): Promise<CommandLine[]> {
  const found = await call<{ items: CommandLine[] }>("list_skills", { kind: "command", workspace: workspace() });
  return found.items.filter((each) => each.state !== "shadowed");
}

const COMMAND = /^\/([a-z][a-z0-9_-]*)(?:\s+([^]*))?$/;

/** Send what was typed: the message of a command where it begins with one, after that has run what it runs. */
export async function sendTyped(typed: string, rest: string, pictures: SentPicture[], documents: SentDocument[]): Promise<void> {
  const [, name, words] = COMMAND.exec(typed) ?? [];
  const isCommand = name !== undefined && (await commands()).some((each) => each.name === name);
  if (!isCommand) return send([typed, rest].filter(Boolean).join("\n\n"), pictures, documents);
  const target = await opening();
  const filled = await call<FilledCommand>("fill_command", {
    name,
    arguments: words ?? "",
    conversation_id: target.id,
    interactive: true,
    reads: true,
  });
  if (!filled.text) {
    await attempt(reload(target)); // its calls were of no turn, and nothing else says that they are over
    throw new Error(`/${name}: ${t.commandFailed}`);
  }
  if (selected.value !== target) throw new Error(`/${name}: ${t.elsewhere}`);
  const { files, allowed_tools } = filled;
  await send([filled.text, rest].filter(Boolean).join("\n\n"), pictures, documents, { files, allowed_tools });
}

// The conversation that is displayed; a new one is opened for a first message.
async function opening(): Promise<Conversation> {
  if (selected.value.id) return selected.value;
  const opened = await attempt(call<ConversationLine>("open_conversation", { workspace: folder.value.trim() }));
  if (!opened) throw new Error(problem.value);
  const target = conversation(opened.id);
  target.line.value = opened;
  target.isFromField = true;
  selected.value = target;
  hold(target);
  history.replaceState(null, "", `#${opened.id}`);
  return target;
}

/** Send a message; a new conversation is opened for the first one. One that is refused was not said. */
export async function send(
  text: string,
  pictures: SentPicture[] = [],
  documents: SentDocument[] = [],
  more: { files?: string[]; allowed_tools?: string[] } = {},
): Promise<void> {
  const target = await opening();
  if (target.isRunning && !pictures.length && !documents.length && !more.allowed_tools?.length && !more.files?.length) {
    const joined = await call<{ joined: boolean }>("steer_turn", {
      conversation_id: target.id,
      turn_id: target.turnId,
      text,
    });
    if (joined.joined) return;
  }
  if (target.newer.value) await toNewest(target);
  target.reloads += 1; // what is under way knows nothing of this message
  const row = target.say(text, pictures, documents);
  const { model, preset, mode, temperature } = choices.value;
  const sampling = temperature === "" ? undefined : { temperature: Number(temperature) };
  try {
    await call("send_message", {
      text,
      conversation_id: target.id,
      interactive: true,
      detach: true,
      client: "page",
      ...(pictures.length ? { pictures: pictures.map((each) => each.data) } : {}),
      ...(documents.length ? { documents } : {}),
      ...(model ? { model } : {}),
      ...(preset ? { preset } : {}),
      ...(mode ? { mode } : {}),
      ...(sampling ? { sampling } : {}),
      ...(planFirst.value ? { plan_first: true } : {}),
      ...more,
    });
  } catch (error) {
    const isRefused = error instanceof MethodError && error.code !== UNREACHABLE;
    if (!isRefused) return fail(target, error); // it may be on its way
    target.unsay(row);
    throw error;
  }
}

/** Display below the messages what is wrong with the one that was sent last. */
export function fail(target: Conversation, error: unknown): void {
  const { message } = error as Error;
  target.take({ type: "turn_failed", conversation_id: target.id, turn_id: "", code: "", message, hint: "" });
}

export async function stopTurn(): Promise<void> {
  await attempt(call("cancel_turn", { conversation_id: selected.value.id }));
}

/** Return the stored message before another one of the conversation that is displayed; 0 for none. */
export async function before(messageId: number): Promise<number> {
  const page = await call<ConversationDetail>("show_conversation", {
    conversation_id: selected.value.id,
    before: messageId,
    limit: 1,
  });
  return page.messages.at(-1)?.id ?? 0;
}

/** Copy the conversation up to a message into a new one and go there. */
export async function fork(messageId: number): Promise<void> {
  const made = await attempt(
    call<ConversationLine>("fork_conversation", { conversation_id: selected.value.id, message_id: messageId }),
  );
  if (!made) return;
  await attempt(loadLines());
  await select(made.id);
}

export async function answer(
  each: ApprovalLine,
  how: "deny" | "once" | "conversation" | "project" | "always",
): Promise<void> {
  await attempt(call("answer_approval", { approval_id: each.id, digest: each.digest, answer: how }));
  await attempt(loadApprovals());
}

function take(event: Event): void {
  switch (event.type) {
    case "resync":
      void attempt(refresh());
      return;
    case "estop_changed":
      estop.value = event.is_set;
      void attempt(loadMachine());
      return;
    case "approval_requested":
    case "approval_resolved":
      void attempt(loadApprovals());
      break;
    case "turn_started":
    case "turn_finished":
    case "turn_failed":
      void attempt(loadLines());
      break;
  }
  const id = event.conversation_id;
  if (!id) return;
  const target = conversation(id);
  const isOthers = event.type === "turn_started" && !target.isRunning;
  target.take(event);
  const isShown = target === selected.value;
  // Sent elsewhere, or just stored: the daemon's own record is what is displayed.
  // What is being loaded now may have been written down before the turn ended.
  const isStale = target.loading > 0 && (event.type === "turn_finished" || event.type === "turn_failed");
  if (isStale || (isShown && (isOthers || event.type === "turn_finished"))) void attempt(reload(target));
}

async function refresh(): Promise<void> {
  const displayed = selected.value;
  const messages = displayed.id ? [reload(displayed)] : [];
  await Promise.all([...messages, loadLines(), loadApprovals(), loadMachine(), loadModelNames(), loadNames()]);
}

/** Begin: follow the daemon, and show what the address names. */
export async function begin(): Promise<void> {
  addEventListener("hashchange", () => void attempt(enterByAddress()));
  await attempt(enterByAddress());
  void follow(take);
  const id = decodeURIComponent(location.hash.slice(1));
  void reopen().catch(() => undefined);
  if (!/^[\w-]{8,}$/.test(id)) return;
  selected.value = conversation(id);
  hold(selected.value);
  void reload(selected.value).catch(() => undefined); // what follows the daemon reports what is wrong
}
