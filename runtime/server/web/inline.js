// Inline Markdown: `code`, **bold** and *italic*. All else is text, HTML and links too.
import { el } from "./dom.js";

const REACH = 2000; // a delimiter without its partner within so many characters is text
const MARK = /[\\`*]/g;
const WORD = /[\p{L}\p{N}]/u;

/**
 * Nodes of `text` from `start` on, and how far they stay as they are whatever comes after `text`.
 * With `final` nothing comes after it.
 */
export function inline(text, start, final) {
  const nodes = [];
  let plain = start; // begin of the text that has no node yet
  let at = start;
  const flush = (end) => {
    if (end > plain) nodes.push(document.createTextNode(text.slice(plain, end)));
  };
  while (at < text.length) {
    MARK.lastIndex = at;
    const mark = MARK.exec(text);
    if (!mark) break;
    const found = read(text, mark.index, final);
    if (found === "wait") {
      flush(mark.index);
      const kept = nodes.length;
      nodes.push(document.createTextNode(text.slice(mark.index)));
      return { nodes, kept, settled: mark.index };
    }
    if (found.node) {
      flush(mark.index);
      nodes.push(found.node);
      plain = found.end;
    }
    at = found.end;
  }
  flush(text.length);
  return { nodes, kept: nodes.length, settled: text.length };
}

/** What begins at `at`: a node and its end, only an end (it is text), or "wait" for more text. */
function read(text, at, final) {
  const char = text[at];
  if (char === "\\") {
    const next = text[at + 1];
    if (next === undefined && !final) return "wait";
    if (!/[\\`*_#]/.test(next ?? "")) return { end: at + 1 };
    return { node: document.createTextNode(next), end: at + 2 };
  }
  const run = runLength(text, at);
  const atEnd = at + run === text.length;
  if (atEnd && !final) return "wait"; // the run may go on
  if (char === "`") return pair(text, at, run, run, "code", final);
  if (/\s/.test(text[at + run] ?? " ")) return { end: at + run };
  if (run === 2 || run === 3) return pair(text, at, 2, run, "strong", final);
  if (run === 1 && !WORD.test(text[at - 1] ?? "")) return pair(text, at, 1, run, "em", final);
  return { end: at + run };
}

/** The element that a delimiter of `size` opens, if its partner is in reach. */
function pair(text, at, size, run, name, final) {
  const begin = at + size;
  const limit = Math.min(text.length, begin + REACH);
  for (let i = at + run; i < limit; i++) {
    if (text[i] !== text[at]) continue;
    const other = runLength(text, i);
    if (i + other === text.length && !final) return "wait";
    if (closes(text, i, other, size, name)) {
      const end = name === "strong" ? i + other - size : i;
      return { node: element(name, text.slice(begin, end)), end: end + size };
    }
    i += other - 1;
  }
  if (!final && text.length < begin + REACH) return "wait";
  return { end: at + run };
}

function closes(text, at, run, size, name) {
  if (name === "code") return run === size;
  if (/\s/.test(text[at - 1])) return false;
  if (name === "strong") return run === 2 || run === 3;
  return run === 1 && !WORD.test(text[at + 1] ?? "");
}

function element(name, text) {
  if (name !== "code") return el(name, {}, ...inline(text, 0, true).nodes);
  const padded = text.length > 2 && text.startsWith(" ") && text.endsWith(" ") && text.trim();
  return el("code", {}, padded ? text.slice(1, -1) : text);
}

function runLength(text, at) {
  let end = at + 1;
  while (text[end] === text[at]) end++;
  return end - at;
}
