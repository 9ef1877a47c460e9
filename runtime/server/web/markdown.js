// A safe subset of Markdown as DOM nodes, while it streams: what is shown never depends on how the
// text was split, and a push costs what is new, not what is there.
import { copyButton, el } from "./dom.js";
import { inline } from "./inline.js";

const FENCE = /^(\s*)(`{3,}|~{3,})\s*([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*)$/s;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+(\S.*)$/s;
const QUOTE = /^ {0,3}> ?(.*)$/s;
const RULE = /^ {0,3}([-*_])(\s*\1){2,}\s*$/;
const TABLE_RULE = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;
// beginnings of lines of which one cannot say yet what they are; rows and fences wait for their end
const UNDECIDED = /^\s*(?:[-*_+\s]*|#{1,6}\s*|\d{1,9}[.)]?\s*|>\s?|`{1,2}|~{1,2}|`{3}.*|~{3}.*|\|.*)$/s;

/** A text that grows, shown inside `root`. */
export class MarkdownView {
  #root;
  #pending = ""; // received, not yet shown
  #lists = []; // open lists, outermost first: {list, item, indent}
  #unit = null; // the element whose text grows: {node, text, settled, fixed, grows}; `fixed` children stay
  #code = null; // the open code block: {text, fence, indent, lines}
  #table = null; // the tbody of a table that grows
  #inLine = false; // the line that grows is known, its text goes to the unit or the code block

  constructor(root) {
    this.#root = root;
  }

  /** Show more text. */
  push(text) {
    this.#pending += text;
    this.#advance(false);
    this.#draw(false);
  }

  /** No text comes after this. */
  finish() {
    this.#advance(true);
    this.#close();
    this.#code = null;
  }

  #advance(final) {
    while (this.#pending) {
      const newline = this.#pending.indexOf("\n");
      const line = newline < 0 ? this.#pending : this.#pending.slice(0, newline);
      if (!this.#inLine) {
        if (newline < 0 && !final && this.#undecided(line)) return;
        this.#begin(line);
      } else {
        this.#add(line);
      }
      this.#pending = newline < 0 ? "" : this.#pending.slice(newline + 1);
      if (newline >= 0) this.#endLine();
    }
  }

  #undecided(line) {
    if (!this.#code) return UNDECIDED.test(line);
    return line.trim() === "" || /^\s*(`+|~+)\s*$/.test(line);
  }

  #begin(line) {
    if (this.#code) return this.#beginCode(line);
    if (!line.trim()) {
      this.#close();
      return;
    }
    const fence = FENCE.exec(line);
    if (fence) return this.#openCode(fence);
    if (this.#beginRow(line)) return;
    const heading = HEADING.exec(line);
    const item = RULE.test(line) ? null : ITEM.exec(line);
    const quote = QUOTE.exec(line);
    if (heading) {
      this.#closeAll();
      this.#open(this.#root, `h${Math.min(6, heading[1].length + 2)}`, heading[2]);
    } else if (RULE.test(line)) {
      this.#closeAll();
      this.#root.append(el("hr"));
    } else if (item) {
      this.#beginItem(item);
    } else if (quote) {
      this.#beginQuote(quote[1]);
    } else {
      this.#beginText(line);
    }
    this.#inLine = true;
  }

  #beginText(line) {
    if (this.#unit?.grows) return this.#add(`\n${line.trimStart()}`);
    if (!/^\s/.test(line)) this.#lists = []; // after an empty line only what is indented belongs to an item
    this.#open(this.#place(), "p", line.trimStart());
  }

  #beginQuote(text) {
    if (this.#unit?.node.localName === "blockquote") return this.#add(`\n${text}`);
    this.#closeAll();
    this.#open(this.#root, "blockquote", text);
  }

  #beginItem([, space, marker, text]) {
    this.#close();
    const indent = space.length;
    while (this.#lists.length > 1 && indent < this.#lists.at(-1).indent) this.#lists.pop();
    const name = /\d/.test(marker) ? "ol" : "ul";
    let open = this.#lists.at(-1);
    if (!open || indent > open.indent + 1 || open.list.localName !== name) {
      if (open && indent <= open.indent + 1) this.#lists.pop();
      const start = name === "ol" && parseInt(marker, 10) !== 1 ? parseInt(marker, 10) : null;
      open = { list: el(name, { start }), item: null, indent };
      this.#place().append(open.list);
      this.#lists.push(open);
    }
    open.item = el("li");
    open.list.append(open.item);
    this.#grow(open.item, text);
  }

  /** A row of a table, once its rule has shown that the line before was the head. */
  #beginRow(line) {
    if (!/^\s*\|/.test(line)) {
      this.#table = null;
      return false;
    }
    const inText = this.#unit?.grows && this.#unit.node.localName === "p";
    if (this.#table) {
      this.#table.append(row(line, "td"));
      return true;
    }
    const head = inText ? this.#unit.text.split("\n").at(-1) : "";
    if (!TABLE_RULE.test(line) || !/^\s*\|/.test(head)) return false;
    this.#unit.text = this.#unit.text.slice(0, -head.length).trimEnd();
    const node = this.#unit.node;
    this.#redraw();
    this.#table = el("tbody");
    const table = el("table", {}, el("thead", {}, row(head, "th")), this.#table);
    node.after(el("div", { class: "table", tabindex: 0, role: "region", "aria-label": "Table" }, table));
    if (!node.textContent) node.remove();
    this.#unit = null;
    return true;
  }

  #openCode([, indent, fence, language]) {
    this.#close();
    if (!indent) this.#lists = [];
    const text = document.createTextNode("");
    const label = language.trim().split(/\s/)[0] || "text";
    const head = el("div", { class: "code-head" }, el("span", {}, label), copyButton(() => text.data, "code"));
    const body = el("pre", { tabindex: 0, role: "region", "aria-label": `Code, ${label}` }, el("code", {}, text));
    this.#place().append(el("div", { class: "code" }, head, body));
    this.#code = { text, fence, indent: indent.length, lines: 0 };
  }

  #beginCode(line) {
    const { fence, indent, text } = this.#code;
    const mark = line.trim();
    if (mark.length >= fence.length && mark === fence[0].repeat(mark.length)) {
      this.#code = null;
      return;
    }
    const space = Math.min(indent, line.length - line.trimStart().length);
    text.appendData((this.#code.lines++ ? "\n" : "") + line.slice(space));
    this.#inLine = true;
  }

  /** Where the next block goes: into the open item or the root. */
  #place() {
    return this.#lists.at(-1)?.item ?? this.#root;
  }

  #open(place, name, text) {
    this.#close();
    const node = el(name);
    place.append(node);
    this.#grow(node, text);
  }

  #grow(node, text) {
    const grows = !/^h\d$/.test(node.localName); // whether the next line of text goes on in it
    this.#unit = { node, text, settled: 0, fixed: node.childNodes.length, grows };
  }

  #add(text) {
    if (this.#code) this.#code.text.appendData(text);
    else if (this.#unit) this.#unit.text += text;
  }

  #endLine() {
    this.#inLine = false;
    if (this.#unit && !this.#unit.grows) this.#close();
  }

  /** Bring the element that grows up to its text: what is settled stays, the rest is made again. */
  #draw(final) {
    const unit = this.#unit;
    if (!unit) return;
    while (unit.node.childNodes.length > unit.fixed) unit.node.lastChild.remove();
    const { nodes, kept, settled } = inline(unit.text, unit.settled, final);
    unit.node.append(...nodes);
    unit.settled = settled;
    unit.fixed += kept;
  }

  #redraw() {
    this.#unit.node.replaceChildren();
    Object.assign(this.#unit, { settled: 0, fixed: 0 });
    this.#draw(true);
  }

  #close() {
    this.#draw(true);
    this.#unit?.node.normalize();
    this.#unit = null;
    this.#table = null;
  }

  #closeAll() {
    this.#close();
    this.#lists = [];
  }
}

/** A table row: cells between bars that are not escaped. */
function row(line, name) {
  const cells = line.trim().replace(/^\||\|$/g, "").split(/(?<!\\)\|/);
  const nodes = cells.map((cell) => inline(cell.trim().replaceAll("\\|", "|"), 0, true).nodes);
  return el("tr", {}, ...nodes.map((inner) => el(name, name === "th" ? { scope: "col" } : {}, ...inner)));
}
