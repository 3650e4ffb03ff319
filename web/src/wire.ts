// What the daemon reports and what happens in it, as clawd/wire defines it: the parts displayed here.

export interface FileDiff {
  path: string;
  lines?: { mark?: string; text?: string; number?: number }[];
  is_new?: boolean;
  is_removed?: boolean;
  is_binary?: boolean;
  is_cut?: boolean;
  added?: number;
  removed?: number;
  note?: string;
}

export interface Claim {
  text: string;
  kind: string;
  object: string;
  verdict: "supported" | "contradicted" | "failed";
  receipt_id: string;
}

export interface ConversationLine {
  id: string;
  title: string;
  created_at: string;
  updated_at: string;
  messages: number;
  workspace: string;
  untrusted_sources: string[];
  replaced: number;
  forked_from: string;
  think: string;
  mode: string;
  last_words: string;
}

export interface MessageLine {
  id: number;
  turn_id: string;
  timestamp: string;
  role: string;
  content: string;
  tool_calls: string;
  tool_call_id: string;
  name: string;
  provider: string;
  model: string;
  reasoning: string;
  unreadable: string[];
  claims: Claim[];
  usage: Usage | null;
  pictures?: { media_type: string; width: number; height: number }[];
}

export interface ConversationDetail {
  conversation: ConversationLine;
  messages: MessageLine[];
  cursor: string;
  before: number;
}

export interface ApprovalLine {
  id: string;
  digest: string;
  tool: string;
  arguments: string;
  risk: string;
  reason: string;
  workspace: string;
  conversation_id: string;
  asked_at: string;
  expires_in_s: number;
  environment: Record<string, string>;
  rule: string;
  changes: FileDiff[];
  timed_out: boolean;
}

export interface ReceiptLine {
  seq: number;
  id: string;
  timestamp: string;
  conversation_id: string;
  tool: string;
  status: string;
  risk: string;
  approval: string;
  reason: string;
  duration_ms: number;
  receipt_hash: string;
}

export interface Usage {
  prompt_tokens: number;
  cached_tokens: number;
  completion_tokens: number;
  tokens_per_s: number;
  context_used: number;
  context_size: number;
  rounds: number;
  tool_calls: number;
}

interface Base {
  conversation_id?: string;
}

export type Event = Base &
  (
    | { type: "turn_started"; turn_id: string; provider: string; model: string; mode: string; workspace: string; client: string }
    | { type: "model_loading"; model: string; loaded_bytes: number; total_bytes: number }
    | { type: "prompt_progress"; processed: number; cached: number; total: number }
    | { type: "prompt_evaluated"; tokens: number; cached: number; elapsed_ms: number; context_used: number; context_size: number }
    | { type: "reasoning"; text: string }
    | { type: "text"; text: string }
    | { type: "tool_draft"; tool: string; text: string; index: number }
    | { type: "tool_requested"; call_id: string; tool: string; arguments: string }
    | ({ type: "approval_requested"; approval_id: string; digest: string; call_id: string } & Omit<ApprovalLine, "id">)
    | { type: "approval_resolved"; approval_id: string; answer: string; by: string; reason: string }
    | { type: "question_asked"; question_id: string; text: string; options: string[]; url: string; default: string }
    | { type: "tool_started"; call_id: string; tool: string; sandbox: string; changes: FileDiff[] }
    | { type: "tool_progress"; call_id: string; text: string }
    | { type: "tool_finished"; call_id: string; tool: string; status: string; output: string; receipt_id: string; duration_ms: number; asked: string; exit_code: number | null; job: string }
    | { type: "plan_changed"; markdown: string }
    | { type: "hop_reset"; reason: string }
    | { type: "hop_finished"; usage: { completion_tokens: number; tokens_per_s: number } }
    | { type: "context_compressed"; messages_replaced: number; tokens_before: number; tokens_after: number }
    | { type: "notice"; level: "info" | "warning"; text: string }
    | { type: "message_joined"; turn_id: string; text: string; steer_id: string }
    | { type: "turn_finished"; conversation_id: string; turn_id: string; text: string; stop_reason: string; model: string; usage: Usage; claims: Claim[]; unreadable: string[] }
    | { type: "turn_failed"; conversation_id: string; turn_id: string; code: string; message: string; hint: string }
    | { type: "estop_changed"; is_set: boolean }
    | { type: "session_file_changed"; name: string }
    | { type: "session_file_deleted"; name: string }
    | { type: "resync" }
  );

export interface CommandLine {
  name: string;
  state: "ready" | "untrusted" | "changed" | "broken" | "shadowed";
  description: string;
  hint: string;
}

export interface FilledCommand {
  text: string;
  files: string[];
  allowed_tools: string[];
  conversation_id: string;
}

export interface Status {
  version: string;
  provider?: string;
  model?: string;
  [more: string]: unknown;
}
