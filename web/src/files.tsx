// What the calls of a conversation changed in files, as undo knows it, line by line as the daemon
// compares it, and the files of the conversation itself.

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import { call } from "./api";
import { ReceiptLink } from "./receipt";
import { attempt } from "./state";
import { bytes, t, visible, when } from "./text";
import type { Conversation } from "./turn";
import type { FileDiff } from "./wire";

interface Change {
  receipt_id: string;
  at: string;
  tool: string;
  path: string;
  action: "created" | "changed" | "removed";
  size_before: number;
  size_after: number;
}
interface Kept {
  name: string;
  mime: string;
  size: number;
}

const CALLS = 50;

export function Diff({ file }: { file: FileDiff }): JSX.Element {
  const lines = file.lines ?? [];
  return (
    <figure class="diff">
      <figcaption>
        <span class="mono" dir="ltr">
          {visible(file.path)}
        </span>
        <span class="plus">+{file.added ?? 0}</span> <span class="minus">−{file.removed ?? 0}</span>
        {file.note || file.is_cut ? <span class="faint"> {visible(file.note || t.tooLong)}</span> : null}
      </figcaption>
      <div class="lines scroll" tabIndex={0} hidden={!lines.length}>
        {lines.slice(0, 2_000).map((line) => (
          <div class={line.mark === "+" ? "line plus" : line.mark === "-" ? "line minus" : line.mark === "@" ? "line gap" : "line"}>
            <span class="number">{line.number || ""}</span>
            <span class="mark">{line.mark === "@" ? "⋯" : line.mark}</span>
            <span class="content">{visible(line.text ?? "")}</span>
          </div>
        ))}
      </div>
    </figure>
  );
}

function Changed({ change, of }: { change: Change; of: Conversation }): JSX.Element {
  const diffs = useSignal<FileDiff[] | null>(null);
  const { receipt_id } = change;
  const toggle = async () => {
    if (diffs.value) return void (diffs.value = null);
    const { items } = await call<{ items: FileDiff[] }>("show_changes", { receipt_id, conversation_id: of.id });
    diffs.value = items.filter((each) => each.path === change.path);
  };
  return (
    <li>
      <span class="mono break" dir="ltr">
        {visible(change.path)}
      </span>{" "}
      <span class="tag">{t[change.action]}</span>{" "}
      <span class="faint">
        {bytes(change.size_before)} → {bytes(change.size_after)} · {visible(change.tool)} · {when(change.at)}
      </span>{" "}
      <button type="button" class="quiet" aria-expanded={diffs.value !== null} aria-label={`${t.changes} ${visible(change.path)}`} onClick={() => void attempt(toggle())}>
        {t.changes}
      </button>{" "}
      <ReceiptLink id={receipt_id} />
      {diffs.value?.map((file) => <Diff file={file} />)}
    </li>
  );
}

export function Files({ of }: { of: Conversation }): JSX.Element | null {
  const changes = useSignal<Change[]>([]);
  const kept = useSignal<Kept[]>([]);
  const isIdle = of.doing.value === "";
  const load = async () => {
    const conversation_id = of.id;
    changes.value = (await call<{ items: Change[] }>("list_changes", { conversation_id, limit: CALLS })).items;
    kept.value = (await call<{ items: Kept[] }>("list_session_files", { conversation_id })).items;
  };
  useEffect(() => {
    if (isIdle) void attempt(load());
  }, [isIdle]);
  if (!changes.value.length && !kept.value.length) return null;
  return (
    <details class="plan touched">
      <summary>
        {t.touched} · {changes.value.length + kept.value.length}
      </summary>
      <ul>
        {changes.value.map((each) => (
          <Changed key={`${each.receipt_id} ${each.path}`} change={each} of={of} />
        ))}
        {kept.value.map((each) => (
          <li>
            <span class="mono break" dir="ltr">
              file+session://{visible(each.name)}
            </span>{" "}
            <span class="faint">
              {visible(each.mime)} · {bytes(each.size)}
            </span>
          </li>
        ))}
      </ul>
    </details>
  );
}
