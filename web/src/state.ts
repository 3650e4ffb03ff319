// What the page knows: conversations, what waits for the person, how the machine stands.

import { computed, signal } from "@preact/signals";
import { call, follow, MethodError, UNREACHABLE } from "./api";
import { Conversation } from "./turn";
import type { ApprovalLine, ConversationDetail, ConversationLine, Event } from "./wire";

export type Place = "chat" | "proof" | "machine";

export const place = signal<Place>("chat");
export const lines = signal<ConversationLine[]>([]);
export const linesCursor = signal("");
export const selected = signal<Conversation>(new Conversation(""));
export const approvals = signal<ApprovalLine[]>([]);
export const estop = signal(false);
export const problem = signal("");
export const machine = signal<Record<string, any>>({});
export const models = signal<{ items: { name: string; state: string; size_bytes: number }[]; default: string }>({
  items: [],
  default: "",
});

/** What the next message is sent with; empty leaves it as it is configured. */
export const choices = signal({ model: "", preset: "", mode: "", temperature: "" });

export const waiting = computed(() => approvals.value.filter((each) => !each.timed_out));

const conversations = new Map<string, Conversation>();
const PAGE = 50;
const MESSAGES = 100;

function conversation(id: string): Conversation {
  let found = conversations.get(id);
  if (!found) conversations.set(id, (found = new Conversation(id)));
  return found;
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

export async function loadLines(more = false): Promise<void> {
  const page = await call<{ items: ConversationLine[]; cursor: string }>("list_conversations", {
    limit: PAGE,
    cursor: more ? linesCursor.value : "",
  });
  lines.value = more ? [...lines.value, ...page.items] : page.items;
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

async function loadModels(): Promise<void> {
  models.value = await call("list_models");
}

/** Load the newest messages of a conversation, as the daemon keeps them. */
async function reload(target: Conversation): Promise<void> {
  target.reloads += 1;
  const mine = target.reloads;
  const running = await call<{ items: { conversation_id: string; turn_id: string }[] }>("list_turns");
  const turn = running.items.find((each) => each.conversation_id === target.id);
  let cursor = "";
  const first = await call<ConversationDetail>("show_conversation", { conversation_id: target.id, limit: MESSAGES });
  let messages = first.messages;
  cursor = first.cursor;
  while (cursor) {
    const next = await call<ConversationDetail>("show_conversation", {
      conversation_id: target.id,
      limit: MESSAGES * 5,
      cursor,
    });
    messages = messages.concat(next.messages);
    cursor = next.cursor;
  }
  if (mine !== target.reloads) return; // one that began later knows better
  target.turnId = turn?.turn_id ?? "";
  target.load(first.conversation, messages, turn !== undefined);
  const plan = await call<{ markdown: string }>("show_plan", { conversation_id: target.id });
  target.plan.value = plan.markdown;
}

export async function select(id: string): Promise<void> {
  place.value = "chat";
  if (!id) {
    selected.value = new Conversation("");
    history.replaceState(null, "", "#");
    return;
  }
  const target = conversation(id);
  selected.value = target;
  history.replaceState(null, "", `#${id}`);
  await attempt(reload(target));
}

/** Send a message; a new conversation is opened for the first one. */
export async function send(text: string, workspace = ""): Promise<void> {
  let target = selected.value;
  if (!target.id) {
    const opened = await attempt(call<ConversationLine>("open_conversation", { workspace }));
    if (!opened) throw new Error(problem.value);
    target = conversation(opened.id);
    target.line.value = opened;
    target.isFromField = true;
    selected.value = target;
    history.replaceState(null, "", `#${opened.id}`);
  }
  if (target.isRunning) {
    const joined = await call<{ joined: boolean }>("steer_turn", {
      conversation_id: target.id,
      turn_id: target.turnId,
      text,
    });
    if (joined.joined) return;
  }
  target.reloads += 1; // what is under way knows nothing of this message
  target.say(text);
  const { model, preset, mode, temperature } = choices.value;
  const sampling = temperature === "" ? undefined : { temperature: Number(temperature) };
  try {
    await call("send_message", {
      text,
      conversation_id: target.id,
      interactive: true,
      detach: true,
      ...(model ? { model } : {}),
      ...(preset ? { preset } : {}),
      ...(mode ? { mode } : {}),
      ...(sampling ? { sampling } : {}),
    });
  } catch (error) {
    const { message } = error as Error;
    target.take({ type: "turn_failed", conversation_id: target.id, turn_id: "", code: "", message, hint: "" });
  }
}

export async function stopTurn(): Promise<void> {
  await attempt(call("cancel_turn", { conversation_id: selected.value.id }));
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
  if (isShown && (isOthers || event.type === "turn_finished")) void attempt(reload(target));
}

async function refresh(): Promise<void> {
  await Promise.all([loadLines(), loadApprovals(), loadMachine(), loadModels()]);
  const displayed = selected.value;
  if (displayed.id) await reload(displayed);
}

/** Begin: follow the daemon, and show what the address names. */
export function begin(): void {
  void follow(take);
  const id = decodeURIComponent(location.hash.slice(1));
  if (/^[\w-]{8,}$/.test(id)) selected.value = conversation(id);
}
