// A conversation as the page holds it: messages as they are stored, and the turn that runs as its
// events report it. What is stored always replaces what was streamed. Of a long conversation one
// stretch is held: what is displayed, and some more on both sides.

import { batch, signal, type Signal } from "@preact/signals";
import type { Claim, ConversationDetail, ConversationLine, Event, FileDiff, MessageLine, Usage } from "./wire";

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
  pictures: SentPicture[];
  /** PDFs of this tab's own; what the daemon read of them is in the text of the stored message. */
  documents: SentDocument[];
}

/** A PDF of a message: the file in base64. */
export interface SentDocument {
  name: string;
  data: string;
}

/** A picture of a message: a blob of this tab's own and the file in base64; both are empty where
 * only the facts are kept. */
export interface SentPicture {
  caption: string;
  url: string;
  data: string;
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

export type QuestionEvent = Extract<Event, { type: "question_asked" }>;

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
    pictures: [],
    documents: [],
    ...more,
  };
}

function toolCall(callId: string, tool: string, args: string, status: ToolCall["status"]["value"], key = nextKey()): ToolCall {
  return {
    kind: "tool",
    key,
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

/** Behind the text of a stored message that had PDFs stands what is in them, each behind this. */
export const DOCUMENT = "\n\n[document ";

// Whether a stored text is that of a message with files of this tab's own.
function isOf(item: Said, content: string): boolean {
  if (item.documents.length) return content.startsWith(item.text.value + DOCUMENT);
  return item.pictures.length > 0 && item.text.value === content;
}

/** How many stored messages are held at once. */
const MOST = 200;

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
  /** What older messages are asked for by; 0 where there are none. */
  readonly older = signal(0);
  /** What newer messages are asked for by; empty at the end, where the turn that runs is displayed. */
  readonly newer = signal("");
  /** Counts how often the end was to be displayed, wherever one reads. */
  readonly toEnd = signal(0);
  /** The message that a search found, to be scrolled to; 0 for none. */
  readonly hit = signal(0);
  /** What the program calls itself that began the turn that runs; empty for none, or unknown. */
  readonly client = signal("");
  turnId = "";
  /** How often it was asked for: of several answers the last one counts. */
  reloads = 0;
  /** How many answers to that are under way. */
  loading = 0;
  /** Opened by a message that was typed in the empty field: what is typed since then stays in it. */
  isFromField = false;
  private stretch: MessageLine[] = [];
  private readonly made = new Map<number, Item[]>();
  private unstored: Item[] = [];
  private answer: Said | null = null;
  private began = 0;

  constructor(readonly id: string) {}

  get isRunning(): boolean {
    return this.doing.value !== "";
  }

  /** Take the newest stored messages; what runs goes on behind them.
   *
   * Where older ones are displayed and the newest are not, that stays so, unless they are to be.
   */
  load(found: ConversationDetail, isRunning: boolean, isToEnd: boolean): void {
    batch(() => {
      this.line.value = found.conversation;
      if (isToEnd) {
        this.newer.value = "";
        this.toEnd.value += 1;
      }
      if (!this.newer.value) this.join(found);
      const adopted = new Set(this.stored());
      const failures = this.unstored.filter((item) => item.kind === "notice");
      this.unstored = isRunning
        ? this.unstored.filter((item) => isLiveAnswer(item) || (item.kind === "tool" && !adopted.has(item)))
        : failures.slice(-1);
      this.display();
      this.answer = this.unstored.findLast(isLiveAnswer) ?? null;
      if (!isRunning) this.end();
      else if (!this.isRunning) this.doing.value = "thinking";
    });
  }

  // What was held goes on in the newest messages, or there is a gap between: then these alone stay.
  private join({ messages, before }: ConversationDetail): void {
    const first = messages[0]?.id ?? 0;
    const older = (this.stretch.at(-1)?.id ?? 0) >= first ? this.stretch.filter((each) => each.id < first) : [];
    this.hold([...older, ...messages]);
    if (!older.length) this.older.value = before;
  }

  /** Display a stretch: the messages up to one, and those behind it. */
  open(until: ConversationDetail, behind: ConversationDetail): void {
    batch(() => {
      this.line.value = until.conversation;
      this.older.value = until.before;
      this.newer.value = behind.cursor;
      this.hold([...until.messages, ...behind.messages]);
      this.display();
    });
  }

  /** The ids of the first and the last message held. */
  get ends(): [number, number] {
    return [this.stretch[0]?.id ?? 0, this.stretch.at(-1)?.id ?? 0];
  }

  /** Put older messages before what is held; the newest make room. */
  prepend({ messages, before }: ConversationDetail): void {
    batch(() => {
      const all = [...messages, ...this.stretch];
      this.hold(all.slice(0, MOST));
      this.older.value = before;
      if (all.length > MOST) this.newer.value = String(this.ends[1]);
      this.display();
    });
  }

  /** Put newer messages behind what is held; the oldest make room. */
  append({ messages, cursor }: ConversationDetail): void {
    batch(() => {
      const all = [...this.stretch, ...messages];
      this.hold(all.slice(-MOST));
      this.newer.value = cursor;
      if (all.length > MOST) this.older.value = this.ends[0];
      this.display();
    });
  }

  /** The key of the item in which a stored message is displayed. */
  keyOf(messageId: number): string {
    const message = this.stretch.find((each) => each.id === messageId);
    if (message?.role === "tool") return this.call(message.tool_call_id)?.key ?? "";
    return this.made.get(messageId)?.[0]?.key ?? "";
  }

  private hold(messages: MessageLine[]): void {
    this.stretch = messages;
    const held = new Set(messages.map((each) => each.id));
    for (const id of this.made.keys()) if (!held.has(id)) this.made.delete(id);
  }

  private display(): void {
    const stored = this.stored();
    this.items.value = this.newer.value ? stored : [...stored, ...this.unstored];
  }

  // What is held as items; results go to their calls. A result whose call is older waits for it.
  private stored(): Item[] {
    const calls = new Map<string, ToolCall>();
    const items: Item[] = [];
    for (const message of this.stretch) {
      if (message.role === "tool") {
        const call = calls.get(message.tool_call_id);
        if (!call) continue;
        if (!call.output.value) call.output.value = message.content;
        if (call.status.value === "unknown") call.status.value = "allowed";
        continue;
      }
      let made = this.made.get(message.id);
      if (!made) this.made.set(message.id, (made = this.itemsOf(message)));
      for (const item of made) if (item.kind === "tool") calls.set(item.callId, item);
      items.push(...made);
    }
    return items;
  }

  // What only events report (times, receipts, diffs, speed) stays.
  private itemsOf(message: MessageLine): Item[] {
    const key = `m${message.id}`;
    if (message.role === "user") {
      const sent = this.unstored.find((item) => item.kind === "user" && isOf(item, message.content));
      const own = sent?.kind === "user" ? sent.pictures : [];
      if (sent?.kind === "user" && sent.documents.length) {
        const { pictures, documents } = sent;
        return [said("user", sent.text.value, { key, id: message.id, pictures, documents })];
      }
      const pictures = (message.pictures ?? []).map((each, at) => ({
        caption: `${each.media_type.replace("image/", "").toUpperCase()} ${each.width} × ${each.height}`,
        url: own[at]?.url ?? "",
        data: own[at]?.data ?? "",
      }));
      return [said("user", message.content, { key, id: message.id, pictures })];
    }
    if (message.role !== "assistant") return [];
    const items: Item[] = [];
    if (message.content || message.reasoning || message.unreadable.length) {
      const { id, claims, unreadable, model, content, usage } = message;
      const reasoning = signal(message.reasoning);
      items.push(said("assistant", content, { key, id, claims, unreadable, model, reasoning, usage }));
    }
    storedCalls(message).forEach((asked, at) => {
      const known = this.unstored.findLast((item) => item.kind === "tool" && item.callId === asked.id);
      items.push(known ?? toolCall(asked.id, asked.name, asked.args, "unknown", `${key}-${at}`));
    });
    return items;
  }

  /** A message of the person at this page, before the daemon reports it. */
  say(text: string, pictures: SentPicture[] = [], documents: SentDocument[] = []): Item {
    this.toEnd.value += 1;
    const row = said("user", text, { pictures, documents });
    this.add(row);
    this.doing.value = "starting";
    this.began = performance.now();
    return row;
  }

  /** Take back a message that the daemon refused. */
  unsay(row: Item): void {
    this.drop((item) => item === row);
    this.end();
  }

  take(event: Event): void {
    batch(() => this.takeOne(event));
  }

  /** Put a question of the turn to the person. */
  ask(event: QuestionEvent): void {
    const { question_id: id, text, options, url, default: fallback } = event;
    this.question.value = { id, text, options, url, fallback };
  }

  private add(item: Item): void {
    this.unstored.push(item);
    if (!this.newer.value) this.items.value = [...this.items.value, item];
  }

  private drop(isGone: (item: Item) => boolean): void {
    this.unstored = this.unstored.filter((item) => !isGone(item));
    this.display();
  }

  private call(callId: string): ToolCall | undefined {
    const isIt = (item: Item) => item.kind === "tool" && item.callId === callId;
    const found = this.unstored.findLast(isIt) ?? this.items.value.findLast(isIt);
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
    this.client.value = "";
    this.turnId = "";
  }

  private takeOne(event: Event): void {
    switch (event.type) {
      case "turn_started":
        this.turnId = event.turn_id;
        this.client.value = event.client;
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
        this.drop((item) => item === this.answer || isWritten(item));
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
        this.ask(event);
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
        this.drop(isWritten);
        this.add(toolCall(event.call_id, event.tool, event.arguments, "waiting"));
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
    const among = this.newer.value ? this.unstored : this.items.value;
    const last = this.answer ?? among.findLast((item) => item.kind === "assistant");
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

function isWritten(item: Item): boolean {
  return item.kind === "tool" && item.status.value === "writing";
}

function notice(level: Notice["level"], text: string): Notice {
  return { kind: "notice", key: nextKey(), level, text };
}

function percent(part: number, whole: number): string {
  return whole > 0 ? `${Math.floor((100 * part) / whole)} %` : "";
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
