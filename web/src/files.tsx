// What the calls of a conversation changed in files, as undo knows it, and the files of the
// conversation itself.

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import { call } from "./api";
import { ReceiptLink } from "./receipt";
import { attempt } from "./state";
import { bytes, t, visible, when } from "./text";
import type { Conversation } from "./turn";

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
          <li>
            <span class="mono break" dir="ltr">
              {visible(each.path)}
            </span>{" "}
            <span class="tag">{t[each.action]}</span>{" "}
            <span class="faint">
              {bytes(each.size_before)} → {bytes(each.size_after)} · {visible(each.tool)} · {when(each.at)}
            </span>{" "}
            <ReceiptLink id={each.receipt_id} />
          </li>
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
