// Markdown of models and tools as elements, never as HTML: a tree of tokens becomes a tree of
// nodes, tags in the text stay text, pictures are not loaded and links are displayed before they are
// followed.

import { common, createLowlight } from "lowlight";
import { Marked, type Token, type Tokens } from "marked";
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { signal } from "@preact/signals";
import temml from "temml";
import { t, visible } from "./text";

const MAX_BLOCK = 20_000;
const MAX_TEXT = 400_000;
const MAX_NODES = 20_000;
const MAX_DEPTH = 40;
const MAX_MATHS = 4_000;

const lowlight = createLowlight(common);

const marked = new Marked({
  gfm: true,
  extensions: [
    {
      name: "mathBlock",
      level: "block",
      start: (text) => text.match(/\$\$|\\\[/)?.index,
      tokenizer(text) {
        const match = /^(?:\$\$([^$]{1,4000}?)\$\$|\\\[([\s\S]{1,4000}?)\\\])(?:\n|$)/.exec(text);
        return match ? { type: "mathBlock", raw: match[0], text: (match[1] ?? match[2]).trim() } : undefined;
      },
    },
    {
      name: "math",
      level: "inline",
      start: (text) => text.match(/\$|\\\(/)?.index,
      tokenizer(text) {
        const match = /^(?:\$(?![\s$])([^$\n]{1,1000}?)(?<!\s)\$(?!\d)|\\\(([^\n]{1,1000}?)\\\))/.exec(text);
        return match ? { type: "math", raw: match[0], text: match[1] ?? match[2] } : undefined;
      },
    },
  ],
});

/** The address that a person is asked about; empty for none. */
export const asked = signal("");

function isSafe(href: string): boolean {
  try {
    return ["http:", "https:", "mailto:"].includes(new URL(href).protocol);
  } catch {
    return false;
  }
}

function Link({ href, children }: { href: string; children: ComponentChildren }): JSX.Element {
  if (!isSafe(href)) return <span title={visible(href)}>{children}</span>;
  return (
    <button type="button" class="link" title={visible(href)} onClick={() => (asked.value = new URL(href).href)}>
      {children}
    </button>
  );
}

function Maths({ text, isBlock }: { text: string; isBlock: boolean }): JSX.Element {
  const place = useRef<HTMLSpanElement>(null);
  useEffect(() => {
    const element = place.current;
    if (!element || text.length > MAX_MATHS) return;
    try {
      temml.render(text, element, { displayMode: isBlock, trust: false, maxSize: [20, 200], maxExpand: 200 });
    } catch {
      element.textContent = text;
    }
  }, [text, isBlock]);
  return (
    <span ref={place} class={isBlock ? "maths block" : "maths"}>
      {text}
    </span>
  );
}

interface Hast {
  type: string;
  value?: string;
  tagName?: string;
  properties?: { className?: string[] };
  children?: Hast[];
}

function coloured(nodes: Hast[], count: { left: number }): ComponentChildren[] {
  return nodes.map((node) => {
    if (--count.left < 0) return "";
    if (node.type === "text") return node.value;
    return <span class={node.properties?.className?.join(" ")}>{coloured(node.children ?? [], count)}</span>;
  });
}

export function Code({ text, language }: { text: string; language: string }): JSX.Element {
  const name = language.trim().split(/\s/)[0].toLowerCase();
  const displayed = visible(text.length > MAX_BLOCK ? `${text.slice(0, MAX_BLOCK)}\n… ${t.tooLong}` : text);
  const isKnown = name !== "" && lowlight.registered(name);
  const content = isKnown ? coloured(lowlight.highlight(name, displayed).children as Hast[], { left: MAX_NODES }) : displayed;
  return (
    <figure class="code">
      <figcaption>
        <span>{visible(name)}</span>
        <CopyButton text={text} />
      </figcaption>
      <pre tabIndex={0}>
        <code>{content}</code>
      </pre>
    </figure>
  );
}

export function CopyButton({ text }: { text: string }): JSX.Element {
  const label = useRef<HTMLButtonElement>(null);
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    if (!label.current) return;
    label.current.textContent = t.copied;
    setTimeout(() => label.current && (label.current.textContent = t.copy), 1500);
  };
  return (
    <button type="button" class="quiet" ref={label} onClick={() => void copy()}>
      {t.copy}
    </button>
  );
}

interface Drawing {
  left: number;
}

function inline(tokens: Token[] | undefined, drawing: Drawing, depth: number): ComponentChildren {
  if (!tokens || depth > MAX_DEPTH) return tokens?.map((token) => visible(token.raw));
  return tokens.map((token) => {
    if (--drawing.left < 0) return "";
    const inner = () => inline((token as Tokens.Generic).tokens, drawing, depth + 1);
    switch (token.type) {
      case "strong":
        return <strong>{inner()}</strong>;
      case "em":
        return <em>{inner()}</em>;
      case "del":
        return <del>{inner()}</del>;
      case "codespan":
        return <code>{visible(token.text)}</code>;
      case "br":
        return <br />;
      case "link":
        return <Link href={token.href}>{inner()}</Link>;
      case "image":
        return <Link href={token.href}>{`${visible(token.text || token.href)} (${t.picture})`}</Link>;
      case "math":
        return <Maths text={token.text} isBlock={false} />;
      case "escape":
        return visible(token.text);
      case "text":
        return (token as Tokens.Text).tokens ? inner() : visible(token.text);
      default:
        return visible(token.raw);
    }
  });
}

function blocks(tokens: Token[], drawing: Drawing, depth = 0): ComponentChildren {
  return tokens.map((token) => block(token, drawing, depth));
}

function block(token: Token, drawing: Drawing, depth: number): ComponentChildren {
  if (--drawing.left < 0) return "";
  if (depth > MAX_DEPTH) return visible(token.raw);
  switch (token.type) {
    case "space":
    case "def":
      return null;
    case "heading": {
      const Tag = `h${Math.min(6, token.depth + 2)}` as "h3";
      return <Tag>{inline(token.tokens, drawing, depth)}</Tag>;
    }
    case "paragraph":
      return <p>{inline(token.tokens, drawing, depth)}</p>;
    case "text":
      return <>{inline((token as Tokens.Text).tokens ?? [token], drawing, depth)}</>;
    case "code":
      return <Code text={token.text} language={token.lang ?? ""} />;
    case "mathBlock":
      return <Maths text={token.text} isBlock />;
    case "blockquote":
      return <blockquote>{blocks(token.tokens ?? [], drawing, depth + 1)}</blockquote>;
    case "hr":
      return <hr />;
    case "list":
      return listed(token as Tokens.List, drawing, depth);
    case "table":
      return tabled(token as Tokens.Table, drawing, depth);
    default:
      return <p>{visible(token.raw)}</p>;
  }
}

function listed(list: Tokens.List, drawing: Drawing, depth: number): JSX.Element {
  const items = list.items.map((item) => (
    <li>
      {item.task ? <input type="checkbox" checked={item.checked} disabled aria-label={item.checked ? "✓" : "–"} /> : null}
      {blocks(item.tokens.filter((token) => token.type !== "checkbox"), drawing, depth + 1)}
    </li>
  ));
  return list.ordered ? <ol start={Number(list.start) || 1}>{items}</ol> : <ul>{items}</ul>;
}

function tabled(table: Tokens.Table, drawing: Drawing, depth: number): JSX.Element {
  const style = (at: number) => ({ textAlign: table.align[at] ?? undefined });
  return (
    <div class="scroll" tabIndex={0}>
      <table>
        <thead>
          <tr>
            {table.header.map((cell, at) => (
              <th style={style(at)}>{inline(cell.tokens, drawing, depth + 1)}</th>
            ))}
          </tr>
        </thead>
        <tbody>
          {table.rows.map((row) => (
            <tr>
              {row.map((cell, at) => (
                <td style={style(at)}>{inline(cell.tokens, drawing, depth + 1)}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

// A block that did not change is the same node: a long answer costs its last block alone.
const drawn = new Map<string, ComponentChildren>();
const MAX_DRAWN = 2_000;

function drawnOnce(token: Token, isLast: boolean): ComponentChildren {
  const known = drawn.get(token.raw);
  if (known !== undefined && !isLast) return known;
  const made =
    token.raw.length > MAX_BLOCK && token.type !== "code" ? (
      <pre class="plain">{visible(token.raw)}</pre>
    ) : (
      block(token, { left: MAX_NODES }, 0)
    );
  if (!isLast) {
    if (drawn.size >= MAX_DRAWN) drawn.delete(drawn.keys().next().value!);
    drawn.set(token.raw, made);
  }
  return made;
}

/** Text between blank lines outside of fences, so that each part is read by itself. */
function parts(text: string): string[] {
  const found: string[] = [];
  let from = 0;
  let fence = "";
  let at = 0;
  while (at < text.length) {
    const end = text.indexOf("\n", at);
    const line = text.slice(at, end < 0 ? text.length : end);
    const mark = /^ {0,3}(`{3,}|~{3,})/.exec(line)?.[1] ?? "";
    if (fence ? mark.startsWith(fence) && line.trim() === mark : mark) fence = fence ? "" : mark;
    at = end < 0 ? text.length : end + 1;
    if (!fence && line.trim() === "" && /^(?! |\t|[-*+] |\d+[.)] |>)/.test(text.slice(at, at + 4))) {
      found.push(text.slice(from, at));
      from = at;
    }
  }
  if (from < text.length) found.push(text.slice(from));
  return found;
}

const lexed = new Map<string, Token[]>();

function tokensOf(part: string, isLast: boolean): Token[] {
  const known = lexed.get(part);
  if (known) return known;
  let tokens: Token[];
  if (part.length > MAX_BLOCK && !/^ {0,3}(```|~~~)/.test(part)) {
    tokens = [{ type: "html", raw: part, text: part, block: true, pre: false } as Token];
  } else {
    tokens = marked.lexer(part);
  }
  if (!isLast) {
    if (lexed.size >= MAX_DRAWN) lexed.delete(lexed.keys().next().value!);
    lexed.set(part, tokens);
  }
  return tokens;
}

export function Markdown({ text }: { text: string }): JSX.Element {
  const isCut = text.length > MAX_TEXT;
  const pieces = parts(isCut ? text.slice(0, MAX_TEXT) : text);
  return (
    <div class="markdown" dir="auto">
      {pieces.map((piece, at) => {
        const isLast = at === pieces.length - 1;
        return tokensOf(piece, isLast).map((token) => drawnOnce(token, isLast));
      })}
      {isCut ? <p class="faint">… {t.tooLong}</p> : null}
    </div>
  );
}
