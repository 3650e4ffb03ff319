// A conversation as the page holds it: messages as they are stored, and the turn that runs as its
// events report it. What is stored always replaces what was streamed.

import { batch, signal, type Signal } from "@preact/signals";
import type { Claim, ConversationLine, Event, FileDiff, MessageLine, Usage } from "./wire";

export interface Said {
  kind: "user" | "assistant";
  key: string;
  /** Of the stored message; 0 while it is not stored. */
  id: number;
  text: Signal<string>;
  reasoning: Signal<string>;
  claims: Claim[];
  unreadable: string[];
  model: string;
  usage: Usage | null;
  isLive: Signal<boolean>;
}

export interface ToolCall {
  kind: "tool";
  key: string;
  callId: string;
  tool: string;
  args: Signal<string>;
  status: Signal<"writing" | "waiting" | "running" | "allowed" | "denied" | "failed" | "unknown">;
  output: Signal<string>;
  receipt: Signal<string>;
  tookMs: Signal<number>;
  changes: Signal<FileDiff[]>;
}

export interface Notice {
  kind: "notice";
  key: string;
  level: "info" | "warning" | "error";
  text: string;
}

export type Item = Said | ToolCall | Notice;

export type Doing = "" | "starting" | "loading" | "prompt" | "thinking" | "answering" | "tool" | "approval";

export interface Question {
  id: string;
  text: string;
  options: string[];
  url: string;
  fallback: string;
}

let counter = 0;
const nextKey = (): string => `live-${++counter}`;

function said(kind: "user" | "assistant", text: string, more: Partial<Said> = {}): Said {
  return {
    kind,
    key: nextKey(),
    id: 0,
    text: signal(text),
    reasoning: signal(""),
    claims: [],
    unreadable: [],
    model: "",
    usage: null,
    isLive: signal(false),
    ...more,
  };
}

function toolCall(callId: string, tool: string, args: string, status: ToolCall["status"]["value"]): ToolCall {
  return {
    kind: "tool",
    key: callId || nextKey(),
    callId,
    tool,
    args: signal(args),
    status: signal(status),
    output: signal(""),
    receipt: signal(""),
    tookMs: signal(0),
    changes: signal<FileDiff[]>([]),
  };
}

/** One conversation on the page. */
export class Conversation {
  readonly items = signal<Item[]>([]);
  readonly line = signal<ConversationLine | null>(null);
  readonly doing = signal<Doing>("");
  readonly detail = signal("");
  readonly plan = signal("");
  readonly question = signal<Question | null>(null);
  readonly usage = signal<Usage | null>(null);
  readonly rate = signal(0);
  readonly tookMs = signal(0);
  turnId = "";
  /** How often it was asked for: of several answers the last one counts. */
  reloads = 0;
  /** Opened by a message that was typed in the empty field: what is typed since then stays in it. */
  isFromField = false;
  private answer: Said | null = null;
  private began = 0;

  constructor(readonly id: string) {}

  get isRunning(): boolean {
    return this.doing.value !== "";
  }

  /** Show what is stored; what runs goes on behind it. */
  load(line: ConversationLine, messages: MessageLine[], isRunning: boolean): void {
    batch(() => {
      this.line.value = line;
      this.items.value = this.merged(fromStored(messages), isRunning);
      this.answer = this.items.value.findLast(isLiveAnswer) ?? null;
      if (!isRunning) this.end();
      else if (!this.isRunning) this.doing.value = "thinking";
    });
  }

  // What only events report (times, receipts, diffs, an answer under way) stays.
  private merged(stored: Item[], isRunning: boolean): Item[] {
    const calls = new Map<string, ToolCall>();
    for (const item of this.items.value) if (item.kind === "tool") calls.set(item.callId, item);
    const usages = new Map<string, Usage>();
    for (const item of this.items.value) {
      if (item.kind === "assistant" && item.usage) usages.set(item.text.value, item.usage);
    }
    const kept = stored.map((item) => {
      if (item.kind === "tool") {
        const known = calls.get(item.callId);
        if (!known) return item;
        if (item.output.value && !known.output.value) known.output.value = item.output.value;
        calls.delete(item.callId);
        return known;
      }
      if (item.kind === "assistant") item.usage = usages.get(item.text.value) ?? null;
      return item;
    });
    const failures = this.items.value.filter((item) => item.kind === "notice");
    const under = isRunning
      ? this.items.value.filter((item) => isLiveAnswer(item) || (item.kind === "tool" && calls.has(item.callId)))
      : [];
    return [...kept, ...under, ...(isRunning ? [] : failures.slice(-1))];
  }

  /** A message of the person at this page, before the daemon reports it. */
  say(text: string): void {
    this.items.value = [...this.items.value, said("user", text)];
    this.doing.value = "starting";
    this.began = performance.now();
  }

  take(event: Event): void {
    batch(() => this.takeOne(event));
  }

  private add(item: Item): void {
    this.items.value = [...this.items.value, item];
  }

  private call(callId: string): ToolCall | undefined {
    const found = this.items.value.findLast((item) => item.kind === "tool" && item.callId === callId);
    return found?.kind === "tool" ? found : undefined;
  }

  private live(): Said {
    if (this.answer === null) {
      this.answer = said("assistant", "", { isLive: signal(true) });
      this.add(this.answer);
    }
    return this.answer;
  }

  private closeAnswer(): void {
    if (this.answer) this.answer.isLive.value = false;
    this.answer = null;
  }

  private end(): void {
    this.closeAnswer();
    this.doing.value = "";
    this.detail.value = "";
    this.question.value = null;
    this.turnId = "";
  }

  private takeOne(event: Event): void {
    switch (event.type) {
      case "turn_started":
        this.turnId = event.turn_id;
        this.doing.value = "thinking";
        this.began = performance.now();
        break;
      case "model_loading":
        this.doing.value = "loading";
        this.detail.value = percent(event.loaded_bytes, event.total_bytes);
        break;
      case "prompt_progress":
        this.doing.value = "prompt";
        this.detail.value = percent(event.processed, event.total);
        break;
      case "prompt_evaluated":
        this.doing.value = "thinking";
        this.detail.value = "";
        break;
      case "reasoning":
        this.doing.value = "thinking";
        this.live().reasoning.value += event.text;
        break;
      case "text":
        this.doing.value = "answering";
        this.live().text.value += event.text;
        break;
      case "tool_draft":
        this.takeDraft(event.tool, event.index, event.text);
        break;
      case "hop_reset":
        this.items.value = this.items.value.filter(
          (item) => item !== this.answer && !(item.kind === "tool" && item.status.value === "writing"),
        );
        this.answer = null;
        break;
      case "hop_finished":
        this.rate.value = event.usage.tokens_per_s;
        this.closeAnswer();
        break;
      case "plan_changed":
        this.plan.value = event.markdown;
        break;
      case "question_asked":
        this.question.value = {
          id: event.question_id,
          text: event.text,
          options: event.options,
          url: event.url,
          fallback: event.default,
        };
        break;
      case "context_compressed":
        this.add(notice("info", `${event.messages_replaced} messages → summary, ${event.tokens_before} → ${event.tokens_after} tokens`));
        break;
      case "notice":
        this.add(notice(event.level, event.text));
        break;
      case "message_joined":
        this.closeAnswer();
        this.add(said("user", event.text));
        break;
      case "turn_finished":
        this.takeEnd(event);
        break;
      case "turn_failed":
        this.add(notice("error", event.hint ? `${event.message} ${event.hint}` : event.message));
        this.tookMs.value = performance.now() - this.began;
        this.end();
        break;
      default:
        this.takeCall(event);
    }
  }

  private takeDraft(tool: string, index: number, text: string): void {
    const callId = `draft-${index}`;
    let draft = this.call(callId);
    if (!draft) {
      draft = toolCall(callId, tool, "", "writing");
      draft.key = nextKey();
      this.closeAnswer();
      this.add(draft);
    }
    draft.args.value += text;
    this.doing.value = "tool";
    this.detail.value = tool;
  }

  private takeCall(event: Event): void {
    switch (event.type) {
      case "tool_requested":
        this.closeAnswer();
        this.items.value = [
          ...this.items.value.filter((item) => !(item.kind === "tool" && item.status.value === "writing")),
          toolCall(event.call_id, event.tool, event.arguments, "waiting"),
        ];
        this.doing.value = "tool";
        this.detail.value = event.tool;
        break;
      case "approval_requested": {
        const call = this.call(event.call_id);
        if (call) call.changes.value = event.changes ?? [];
        this.doing.value = "approval";
        break;
      }
      case "approval_resolved":
        this.doing.value = "tool";
        break;
      case "tool_started": {
        const call = this.call(event.call_id);
        if (!call) break;
        call.status.value = "running";
        if (event.changes?.length) call.changes.value = event.changes;
        this.doing.value = "tool";
        this.detail.value = event.tool;
        break;
      }
      case "tool_progress": {
        const call = this.call(event.call_id);
        if (call) call.output.value += event.text;
        break;
      }
      case "tool_finished": {
        const call = this.call(event.call_id);
        if (!call) break;
        call.status.value = event.status as "allowed";
        call.output.value = event.output;
        call.receipt.value = event.receipt_id;
        call.tookMs.value = event.duration_ms;
        this.doing.value = "thinking";
        this.detail.value = "";
        break;
      }
    }
  }

  private takeEnd(event: Extract<Event, { type: "turn_finished" }>): void {
    const last = this.answer ?? this.items.value.findLast((item) => item.kind === "assistant");
    if (last?.kind === "assistant") {
      if (event.text) last.text.value = event.text;
      last.claims = event.claims;
      last.unreadable = event.unreadable;
      last.usage = event.usage;
      last.model = event.model;
      this.items.value = [...this.items.value];
    } else if (event.text) {
      this.add(said("assistant", event.text, { claims: event.claims, usage: event.usage }));
    }
    this.usage.value = event.usage;
    this.tookMs.value = performance.now() - this.began;
    this.end();
  }
}

function isLiveAnswer(item: Item): item is Said {
  return item.kind === "assistant" && item.isLive.value;
}

function notice(level: Notice["level"], text: string): Notice {
  return { kind: "notice", key: nextKey(), level, text };
}

function percent(part: number, whole: number): string {
  return whole > 0 ? `${Math.floor((100 * part) / whole)} %` : "";
}

/** Return stored messages as items: results go to their calls. */
export function fromStored(messages: MessageLine[]): Item[] {
  const items: Item[] = [];
  const calls = new Map<string, ToolCall>();
  for (const message of messages) {
    const key = `m${message.id}`;
    if (message.role === "user") {
      items.push(said("user", message.content, { key, id: message.id }));
    } else if (message.role === "assistant") {
      if (message.content || message.reasoning || message.unreadable.length) {
        const { claims, unreadable, model } = message;
        const reasoning = signal(message.reasoning);
        items.push(said("assistant", message.content, { key, id: message.id, claims, unreadable, model, reasoning }));
      }
      for (const asked of storedCalls(message)) {
        const call = toolCall(asked.id, asked.name, asked.args, "unknown");
        calls.set(asked.id, call);
        items.push(call);
      }
    } else if (message.role === "tool") {
      const call = calls.get(message.tool_call_id);
      if (!call) continue;
      call.output.value = message.content;
      call.status.value = "allowed";
    }
  }
  return items;
}

interface StoredCall {
  id?: string;
  name?: string;
  arguments?: unknown;
  function?: { name?: string; arguments?: unknown };
}

function storedCalls(message: MessageLine): { id: string; name: string; args: string }[] {
  if (!message.tool_calls) return [];
  const asked = JSON.parse(message.tool_calls) as StoredCall[];
  return asked.map((each, index) => {
    const args = each.function?.arguments ?? each.arguments ?? {};
    return {
      id: each.id ?? `${message.id}-${index}`,
      name: each.function?.name ?? each.name ?? "?",
      args: typeof args === "string" ? args : JSON.stringify(args),
    };
  });
}
