// A verifier of the receipt log that runs in the browser, by the format alone (docs/receipts.md).
// It trusts nothing that the daemon says of the chain: it reads the lines, and computes.

const GENESIS = "0".repeat(64);
const BETWEEN_CHECKPOINTS = 256;
const MAX_LINE = 1 << 20;

const LEFT_OUT = ["checkpoint_hash", "key", "contacted", "refused"];
const TEXTS =
  "id timestamp conversation_id tool args_hash result_hash workspace approved_by reason sandbox previous_hash receipt_hash checkpoint_hash key contacted refused".split(" ");
const SIGNED = "timestamp head_hash public_key next_public_key signature checkpoint_hash".split(" ");

type Check = (value: unknown) => boolean;
type Fields = Record<string, unknown>;

const isText: Check = (value) => typeof value === "string" && value.isWellFormed();
const isWhole: Check = (value) => Number.isSafeInteger(value);
const isOneOf = (...words: string[]): Check => (value) => words.includes(value as string);

const RECEIPT: Record<string, Check> = {
  ...Object.fromEntries(TEXTS.map((name) => [name, isText])),
  seq: isWhole,
  uid: isWhole,
  duration_ms: isWhole,
  exit_code: (value) => value === null || isWhole(value),
  status: isOneOf("allowed", "denied", "failed"),
  risk: isOneOf("low", "medium", "high"),
  approval: isOneOf("auto", "user", "rule", "none"),
  format: isOneOf("clawd-receipt/1"),
};
const CHECKPOINT: Record<string, Check> = {
  ...Object.fromEntries(SIGNED.map((name) => [name, isText])),
  seq: isWhole,
  type: isOneOf("checkpoint"),
  format: isOneOf("clawd-checkpoint/1"),
};

interface Entry {
  kind: "" | "typed" | "broken" | "receipt" | "checkpoint";
  isSound: boolean;
  /** What stands before it: number and hash of a receipt, hash of a checkpoint after that. */
  before: [number, string, string];
  hash: string;
  /** Of a checkpoint: the key whose signature holds ("" for none), and the next one. */
  keys: [string, string] | null;
}

export interface Verdict {
  ok: boolean;
  receipts: number;
  signed: number;
  firstBad: number | null;
  head: string;
  firstKey: string;
}

export interface Known {
  /** A head from elsewhere. */
  head?: [number, string];
  /** The first public key, from elsewhere. */
  key?: string;
}

const utf8 = new TextEncoder();
const strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

const hex = (data: Uint8Array): string => Array.from(data, (byte) => byte.toString(16).padStart(2, "0")).join("");

async function sha256(text: string): Promise<string> {
  return hex(new Uint8Array(await crypto.subtle.digest("SHA-256", utf8.encode(text))));
}

function unhex(text: string, length: number): Uint8Array<ArrayBuffer> | null {
  if (text.length !== 2 * length || !/^[0-9a-f]*$/.test(text)) return null;
  return Uint8Array.from({ length }, (_, at) => parseInt(text.slice(2 * at, 2 * at + 2), 16));
}

function canonical(fields: Fields, ...out: string[]): string {
  const kept: Fields = {};
  for (const name of Object.keys(fields).sort()) {
    if (out.includes(name) || (LEFT_OUT.includes(name) && fields[name] === "")) continue;
    kept[name] = fields[name];
  }
  return JSON.stringify(kept);
}

async function signer(fields: Fields): Promise<string> {
  const key = unhex(fields.public_key as string, 32);
  const signature = unhex(fields.signature as string, 64);
  if (!key || !signature) return "";
  try {
    const imported = await crypto.subtle.importKey("raw", key, { name: "Ed25519" }, false, ["verify"]);
    const text = utf8.encode(canonical(fields, "signature", "checkpoint_hash"));
    return (await crypto.subtle.verify({ name: "Ed25519" }, imported, signature, text)) ? hex(key) : "";
  } catch {
    return "";
  }
}

function fits(shape: Record<string, Check>, fields: Fields): boolean {
  const names = Object.keys(fields);
  return names.length === Object.keys(shape).length && names.every((name) => name in shape && shape[name](fields[name]));
}

const nothing: Entry = { kind: "", isSound: false, before: [-1, "", ""], hash: "", keys: null };

async function read(line: string | null): Promise<Entry> {
  if (line === null) return nothing;
  let found: Fields;
  try {
    const value: unknown = JSON.parse(line);
    if (typeof value !== "object" || value === null || Array.isArray(value)) return nothing;
    found = value as Fields;
  } catch {
    return nothing;
  }
  const whole = { ...Object.fromEntries(LEFT_OUT.map((name) => [name, ""])), ...found };
  if (fits(RECEIPT, whole)) {
    const own = whole.receipt_hash as string;
    const isSound = line === `${canonical(whole)}\n` && (await sha256(canonical(whole, "receipt_hash"))) === own;
    const before: Entry["before"] = [Number(whole.seq) - 1, whole.previous_hash as string, whole.checkpoint_hash as string];
    return { kind: "receipt", isSound, before, hash: own, keys: null };
  }
  if (fits(CHECKPOINT, found)) {
    const own = found.checkpoint_hash as string;
    const isSound = line === `${canonical(found)}\n` && (await sha256(canonical(found, "checkpoint_hash"))) === own;
    const before: Entry["before"] = [Number(found.seq) || -1, found.head_hash as string, ""];
    return { kind: "checkpoint", isSound, before, hash: own, keys: [await signer(found), found.next_public_key as string] };
  }
  if (typeof found.type !== "string") return nothing;
  const isOurs = found.type === "checkpoint" && found.format === "clawd-checkpoint/1";
  return { ...nothing, kind: isOurs ? "broken" : "typed" };
}

function same(first: Entry["before"], second: Entry["before"]): boolean {
  return first[0] === second[0] && first[1] === second[1] && first[2] === second[2];
}

/** Split a log into lines, each with its newline where it has one; null is no UTF-8, or too long. */
export function linesOf(data: Uint8Array): (string | null)[] {
  const lines: (string | null)[] = [];
  for (let at = 0; at < data.length; ) {
    const end = data.indexOf(10, at);
    const next = end < 0 ? data.length : end + 1;
    try {
      lines.push(next - at > MAX_LINE ? null : strict.decode(data.subarray(at, next)));
    } catch {
      lines.push(null);
    }
    at = next;
  }
  return lines;
}

/** Judge a whole chain: how many receipts hold, how many of them are signed, where it breaks. */
export async function verify(
  lines: (string | null)[],
  known: Known = {},
  progress: (done: number) => void = () => undefined,
): Promise<Verdict> {
  let seq = 0;
  let head = GENESIS;
  let mark = "";
  let signed = 0;
  let nextKey = known.key ?? "";
  let firstKey = "";
  const seen = new Set<string>();
  const bad = (firstBad: number, receipts = seq): Verdict => ({ ok: false, receipts, signed, firstBad, head, firstKey });
  for (let at = 0; at < lines.length; at += 1) {
    if (at % 500 === 0) progress(at);
    const entry = await read(lines[at]);
    const maySign = entry.keys
      ? entry.keys[0] !== "" && (nextKey === "" || nextKey === entry.keys[0])
      : !(signed > 0 && signed <= seq - BETWEEN_CHECKPOINTS);
    if (!(entry.isSound && same(entry.before, [seq, head, mark]) && maySign)) {
      const isTorn = at === lines.length - 1 && lines[at] !== null && !lines[at]!.endsWith("\n");
      if (isTorn) return bad(seq + 1);
      const later = await Promise.all(lines.slice(at + 1).map(read));
      return bad(brokenAt(entry, later, [seq, head, mark], seen.has(entry.hash)));
    }
    seen.add(entry.hash);
    if (entry.keys) {
      mark = entry.hash;
      nextKey = entry.keys[1];
      firstKey ||= entry.keys[0];
      signed = seq;
      continue;
    }
    seq += 1;
    head = entry.hash;
    mark = "";
    if (known.head && known.head[0] === seq && known.head[1] !== head) return bad(seq, seq - 1);
  }
  if (known.head && known.head[0] > seq) return bad(seq + 1);
  return { ok: true, receipts: seq, signed, firstBad: null, head, firstKey };
}

// Which receipt is named as the first bad one: the one that is due, but where that one itself
// stands there changed, the one before it.
function brokenAt(entry: Entry, later: Entry[], end: Entry["before"], isCopy: boolean): number {
  const [seq, head, mark] = end;
  const due = seq + 1;
  const receipts = later.filter((each) => each.kind === "receipt");
  const namesIt = receipts.length > 0 && receipts[0].before[1] === entry.hash;
  if (!entry.isSound || entry.before[0] > seq) return due;
  if (entry.before[0] < seq || (entry.keys && mark)) {
    return due - Number(namesIt && entry.before[0] === seq - 1 && !isCopy);
  }
  if (entry.keys || same(entry.before, end)) return seq;
  if (entry.before[1] !== head) return due - Number(seq > 0 && (namesIt || receipts.length === 0));
  return due;
}
