// The way from what is displayed to its receipt.

import type { JSX } from "preact";
import { place } from "./state";
import { t } from "./text";

export function ReceiptLink({ id }: { id: string }): JSX.Element {
  const go = () => {
    place.value = "proof";
    location.hash = `receipt=${encodeURIComponent(id)}`;
  };
  return (
    <button type="button" class="quiet mono" onClick={go} title={id}>
      {t.receipt} …{id.slice(-6)}
    </button>
  );
}
