// The page: conversations at the side, one of them in the middle, and what stands above all.

import { render, type JSX } from "preact";
import { useRef } from "preact/hooks";
import { enter, link, post } from "./api";
import { isOpen, Tray } from "./approvals";
import { Chat } from "./chat";
import { Machine } from "./machine";
import { asked } from "./markdown";
import { Proof } from "./proof";
import { isSideOpen, Sidebar } from "./side";
import { attempt, begin, estop, loadMachine, named, place, problem, selected, waiting, type Place } from "./state";
import { t, visible } from "./text";
import "./style.css";

function Pill(): JSX.Element {
  const doing = selected.value.doing.value;
  const detail = selected.value.detail.value;
  const client = selected.value.client.value;
  return (
    <span class={`pill ${doing || "idle"}`} role="status">
      {t[doing || "idle"]} {visible(detail)}
      {doing && client && client !== "page" ? ` · ${client === "clawctl" ? t.terminal : visible(client)}` : null}
    </span>
  );
}

function Header(): JSX.Element {
  const tab = (name: Place) => (
    <button type="button" class="tab" aria-pressed={place.value === name} onClick={() => (place.value = name)}>
      {t[name]}
    </button>
  );
  const stop = () => {
    if (confirm(t.estopConfirm)) void attempt(post("/estop", { reason: "from the page" }));
  };
  return (
    <header class="top">
      <button type="button" class="quiet menu" aria-label={t.chat} aria-expanded={isSideOpen.value} onClick={() => (isSideOpen.value = !isSideOpen.value)}>
        ☰
      </button>
      <img src="/page/icon.svg" alt="" width="24" height="24" />
      <h1>{visible(selected.value.line.value?.title || named.value.title)}</h1>
      <Pill />
      <div class="tabs">
        {tab("chat")}
        {tab("proof")}
        {tab("machine")}
      </div>
      <button type="button" class={waiting.value.length ? "badge some" : "badge"} aria-pressed={isOpen.value} onClick={() => (isOpen.value = !isOpen.value)}>
        {t.approvals} {waiting.value.length || ""}
      </button>
      <button type="button" class="estop" onClick={stop}>
        {t.estop}
      </button>
    </header>
  );
}

function Lock(): JSX.Element {
  const field = useRef<HTMLInputElement>(null);
  return (
    <main class="lock">
      <form
        onSubmit={(event) => {
          event.preventDefault();
          problem.value = "";
          void attempt(enter(field.current!.value));
        }}
      >
        <h1>clawd</h1>
        <p>{t.locked}</p>
        <p class="mono faint">{t.lockedHint}</p>
        <label>
          {t.key} <input ref={field} type="password" autocomplete="current-password" />
        </label>
        <button type="submit">{t.unlock}</button>
        {problem.value ? (
          <p class="wrong" role="alert">
            {visible(problem.value)}
          </p>
        ) : null}
      </form>
    </main>
  );
}

function Followed(): JSX.Element | null {
  const href = asked.value;
  if (!href) return null;
  const close = () => (asked.value = "");
  const go = () => {
    close();
    window.open(href, "_blank", "noopener,noreferrer");
  };
  return (
    <div class="shade" onKeyDown={(event) => event.key === "Escape" && close()}>
      <div class="dialog" role="dialog" aria-modal="true" aria-label={t.openLink}>
        <p>{t.openLink}</p>
        <p class="mono break" dir="ltr">
          {visible(href)}
        </p>
        <button type="button" onClick={go}>
          {t.open}
        </button>
        <button type="button" class="quiet" ref={(element) => element?.focus()} onClick={close}>
          {t.cancel}
        </button>
      </div>
    </div>
  );
}

function Bars(): JSX.Element {
  const clear = async () => {
    await post("/estop", { set: false });
    problem.value = ""; // what it refused
    await loadMachine();
  };
  return (
    <>
      {link.value === "lost" || link.value === "connecting" ? (
        <p class="bar" role="status">
          {t[link.value]}
        </p>
      ) : null}
      {estop.value ? (
        <p class="bar red" role="alert">
          {t.estopSet}{" "}
          <button type="button" onClick={() => void attempt(clear())}>
            {t.estopClear}
          </button>
        </p>
      ) : null}
      {problem.value ? (
        <p class="bar red" role="alert">
          {visible(problem.value)}{" "}
          <button type="button" class="quiet" aria-label={t.close} onClick={() => (problem.value = "")}>
            ×
          </button>
        </p>
      ) : null}
    </>
  );
}

function App(): JSX.Element {
  if (link.value === "locked") return <Lock />;
  return (
    <div class="app">
      <a class="skip" href="#field" onClick={(event) => (event.preventDefault(), document.getElementById("field")?.focus())}>
        {t.skip}
      </a>
      <Header />
      <Bars />
      <div class="body">
        <Sidebar />
        <main>{place.value === "chat" ? <Chat /> : place.value === "proof" ? <Proof /> : <Machine />}</main>
        <Tray />
      </div>
      <Followed />
    </div>
  );
}

void begin();
render(<App />, document.getElementById("app")!);
