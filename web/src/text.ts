// What the page says, in English; german.ts has the same. A key that is missing there is a type error.

import { de } from "./german";

const en = {
  newChat: "New conversation",
  search: "Search conversations",
  placeholder: "Message to the agent",
  send: "Send",
  stop: "Stop",
  attach: "Attach a file",
  chat: "Chat",
  proof: "Receipts",
  machine: "Machine",
  approvals: "Approvals",
  noApprovals: "Nothing waits for you.",
  estop: "Emergency stop",
  estopSet: "The emergency stop is set: nothing runs.",
  estopClear: "Clear it",
  estopConfirm: "Stop everything now?",
  once: "Once",
  conversation: "This conversation",
  project: "This project",
  deny: "Deny",
  connecting: "Connecting …",
  lost: "The daemon does not answer. Trying again …",
  locked: "This daemon wants a key.",
  lockedHint: "In a terminal, clawctl page prints a link that opens this page once. Or a key: clawctl key create --name page --scope chat,tools,admin",
  linkOver: "This link was used already, or is too old. In a terminal, clawctl page prints another one.",
  unlock: "Unlock",
  key: "Key or link",
  you: "You",
  agent: "Agent",
  reasoning: "Thoughts",
  editAgain: "Edit and send again",
  regenerate: "Answer again",
  fork: "Continue from here in a copy",
  copy: "Copy",
  copied: "Copied",
  rename: "Rename",
  remove: "Delete",
  removeConfirm: "Delete this conversation with all its messages?",
  exportIt: "Export",
  more: "More",
  older: "Older messages",
  newer: "Newer messages",
  newest: "To the newest",
  noHits: "Nothing found.",
  model: "Model",
  tone: "Tone",
  mode: "Mode",
  temperature: "Temperature",
  asConfigured: "as configured",
  starting: "starting",
  loading: "loading",
  prompt: "reading the prompt",
  thinking: "thinking",
  answering: "answering",
  tool: "tool",
  approval: "waits for you",
  idle: "ready",
  terminal: "terminal",
  arguments: "Arguments",
  output: "Output",
  changes: "Changes",
  receipt: "Receipt",
  writing: "being written",
  waiting: "waits",
  running: "runs",
  allowed: "done",
  denied: "denied",
  failed: "failed",
  unknown: "done",
  openLink: "Open this address?",
  open: "Open",
  cancel: "Cancel",
  picture: "picture, not loaded",
  tooLong: "too long to show whole",
  notDone: "not done",
  hidden: "more",
  verify: "Verify in this browser",
  verifying: "verifying",
  verified: "The chain is whole",
  broken: "The chain is broken",
  noCrypto:
    "Browsers compute hashes and signatures only for pages of this machine or over HTTPS, so this page cannot verify the log here. Open it as https:// (tls_cert in [channels.http]) or, on the daemon's own machine, as http://127.0.0.1. Without a browser: clawctl receipt verify, or export the log and check it elsewhere.",
  head: "Head",
  all: "all",
  status: "Status",
  risk: "Risk",
  loaded: "loaded",
  load: "Load",
  unload: "Unload",
  servers: "MCP servers",
  rules: "Standing rules",
  revoke: "Revoke",
  knowledge: "Knowledge",
  memory: "Memory",
  log: "Log",
  none: "none",
  plan: "Plan",
  planFirst: "Plan first",
  files: "Files",
  question: "The agent asks",
  answer: "Answer",
  dropHere: "Drop files to attach them",
  tooBig: "is larger than a request may be:",
  untrusted: "holds untrusted text from",
  notifications: "Notify me",
  theme: "Light or dark",
  close: "Close",
  welcome: "What shall be done?",
  welcomeHint: "Everything that the agent does leaves a receipt. What it may not do unasked waits for you here and in the terminal.",
  models: "Models",
  tools: "Tools",
  calls: "calls",
  text: "Text",
  vision: "Pictures",
  vectors: "Vectors",
  details: "Details",
  pull: "Pull",
  pullModel: "Bring a model here",
  recommend: "What fits this machine?",
  removeModel: "Delete the files of this model?",
  off: "off",
  test: "Test",
  switchOn: "Switch on",
  switchOff: "Switch off",
  changed: "changed",
  isNew: "new",
  toolsChanged: "Not what was first seen",
  acceptTools: "Take them as they are",
  serverSays: "In the server's own words:",
  addServer: "Add a server",
  addServerHint: "A program runs in the sandbox and reaches only these hosts. Secrets take a terminal: clawctl mcp add.",
  removeServer: "Take this server out of the config?",
  alias: "Name",
  addressOrProgram: "Address, or program with arguments",
  hosts: "Hosts that the program may reach",
  add: "Add",
  newNote: "New note",
  keywords: "Keywords",
  save: "Save",
  edit: "Edit",
  removeNote: "Delete this note?",
  conversations: "conversations",
  byMeaning: "searched by meaning",
  check: "Check",
  isGood: "Memory is good",
  notText: "is neither text nor a PDF or a picture; put it into the workspace, where the agent can read it",
  message: "The message with its files",
  metrics: "Metrics",
  generated: "Generated",
  prompted: "Read",
  queue: "Waiting",
  inMemory: "Models in memory",
  most: "at most",
  touched: "Changed files",
  created: "new",
  removed: "deleted",
  folder: "Folder",
  anchor: "Head kept elsewhere",
  noAnchor: "A head is written as SEQ:HASH.",
  checkpoints: "checkpoints",
  byFolder: "By folder",
  opened: "Open conversations",
  host: "Host",
  answers: "answers",
  useModel: "Let it answer",
  skip: "To the message field",
};

export type Words = typeof en;

export const language = navigator.language.toLowerCase().startsWith("de") ? "de" : "en";
export const t: Words = language === "de" ? de : en;

// Characters that turn text around or hide it; displayed as their number.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e007f}]/gu;

/** Return text of a model or a tool with what would hide or turn it made visible. */
export function visible(text: string): string {
  return text.replace(HIDDEN, (found) =>
    found === "\r" ? "" : `⟨U+${found.codePointAt(0)!.toString(16).toUpperCase().padStart(4, "0")}⟩`,
  );
}

export const number = new Intl.NumberFormat(language);

export function when(stamp: string): string {
  const at = new Date(stamp);
  if (Number.isNaN(at.getTime())) return stamp;
  const isToday = at.toDateString() === new Date().toDateString();
  return isToday
    ? at.toLocaleTimeString(language, { hour: "2-digit", minute: "2-digit" })
    : at.toLocaleDateString(language, { day: "2-digit", month: "short", year: "2-digit" });
}

export function bytes(count: number): string {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let at = 0;
  let value = count;
  while (value >= 1000 && at < units.length - 1) {
    value /= 1000;
    at += 1;
  }
  return `${value < 10 && at ? value.toFixed(1) : Math.round(value)} ${units[at]}`;
}
