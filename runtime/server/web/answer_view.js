// An answer on the page: reasoning, text, tool calls, what went wrong, and its numbers.
import { CallView } from "./call_view.js";
import { copyButton, el, setText } from "./dom.js";
import { MarkdownView } from "./markdown.js";
import { noticeOf } from "./notice.js";

const whole = new Intl.NumberFormat("en");

/** Shows an `Answer` as it grows; `finish` once, after which it no longer grows. */
export class AnswerView {
  node;
  calls = [];
  #answer;
  #actions;
  #head = el("header", { class: "who" }, "assistant");
  #body = el("div", { class: "body" });
  #reasoning = null;
  #content = null;
  #foot = el("footer", { class: "foot" });
  #wait = el("p", { class: "wait" }, "waiting for the first token");

  /** `actions`: {again, focusKey}. */
  constructor(answer, actions) {
    this.#answer = answer;
    this.#actions = actions;
    this.#body.append(this.#wait);
    const article = el("article", { "aria-label": "Answer" }, this.#head, this.#body, this.#foot);
    this.node = el("li", { class: "turn assistant" }, article);
  }

  /** Show what has come since the last time. */
  update() {
    const { reasoning_content, content, tool_calls } = this.#answer;
    if (reasoning_content || content || tool_calls.length) this.#wait.remove();
    if (reasoning_content) this.#showReasoning(reasoning_content);
    if (content) {
      this.#content ??= this.#part(el("div", { class: "text" }));
      this.#content.show(content);
    }
    if (content || tool_calls.length) this.#reasoning?.settle();
    tool_calls.forEach((call, i) => {
      this.calls[i] ??= this.#addCall(call);
      this.calls[i].update();
    });
  }

  /** Show the whole answer. */
  finish() {
    this.update();
    this.#wait.remove();
    for (const part of [this.#reasoning, this.#content]) part?.finish();
    const { whole, error, stopped, tool_calls } = this.#answer;
    tool_calls.forEach((_, i) => {
      this.calls[i].update(true);
      if (!whole) this.calls[i].cutOff();
    });
    if (error) this.#body.append(noticeOf(error, this.#actions));
    else if (stopped && !this.#body.childElementCount) this.#body.append(el("p", { class: "hint" }, "Stopped before the first token."));
    this.#showFoot();
  }

  /** Whether it may be asked for again: only the last answer. */
  showLast(last) {
    for (const node of this.node.querySelectorAll(".again")) node.hidden = !last;
  }

  /** How far an answer that is being made has come, after so many milliseconds. */
  showProgress(ms) {
    const { usage, speed } = this.#answer;
    const parts = [`${(ms / 1000).toFixed(1)} s`];
    if (usage) parts.push(`${whole.format(usage.completion_tokens)} tokens`);
    if (speed !== null) parts.push(speedText(speed));
    setText(this.#foot, parts.join(" · "));
  }

  #part(node) {
    this.#body.append(node);
    return new TextPart(node);
  }

  #showReasoning(text) {
    if (!this.#reasoning) {
      const inner = el("div", { class: "text" });
      const details = el("details", { class: "reasoning", open: true }, el("summary", {}, "Reasoning"), inner);
      this.#body.append(details);
      this.#reasoning = new TextPart(inner, details);
    }
    this.#reasoning.show(text);
  }

  #addCall(call) {
    const view = new CallView(call);
    this.#body.append(view.node);
    return view;
  }

  #showFoot() {
    const numbers = el("dl", { class: "numbers-row" });
    for (const [name, value] of numbersOf(this.#answer)) numbers.append(el("div", {}, el("dt", {}, name), el("dd", {}, value)));
    const copy = this.#answer.content ? copyButton(() => this.#answer.content, "answer") : null;
    const again = el("button", { type: "button", class: "quiet again", click: this.#actions.again }, "Regenerate");
    const actions = [copy, this.#answer.error ? null : again].filter(Boolean);
    this.#foot.replaceChildren(numbers, el("div", { class: "actions" }, ...actions));
  }
}

/** A text that grows in Markdown; `details` is folded once the text after it begins. */
class TextPart {
  #view;
  #shown = 0;
  #details;
  #touched = false; // the reader's own folding stays

  constructor(node, details = null) {
    this.#view = new MarkdownView(node);
    this.#details = details;
    details?.querySelector("summary").addEventListener("click", () => (this.#touched = true));
  }

  show(text) {
    if (text.length > this.#shown) this.#view.push(text.slice(this.#shown));
    this.#shown = text.length;
  }

  finish() {
    this.#view.finish();
  }

  settle() {
    if (!this.#touched) this.#details.open = false;
    this.#touched = true;
  }
}

function speedText(speed) {
  return `${speed < 100 ? speed.toFixed(1) : whole.format(Math.round(speed))} tok/s`;
}

function numbersOf(answer) {
  const { usage, ttft, speed, duration, finish_reason, stopped } = answer;
  const found = [];
  if (ttft !== null) found.push(["TTFT", ttft < 10_000 ? `${Math.round(ttft)} ms` : `${(ttft / 1000).toFixed(1)} s`]);
  if (speed !== null) found.push(["speed", speedText(speed)]);
  if (duration !== null && ttft !== null) found.push(["time", `${(duration / 1000).toFixed(1)} s`]);
  if (usage) {
    const cached = usage.prompt_tokens_details?.cached_tokens;
    const reasoned = usage.completion_tokens_details?.reasoning_tokens;
    found.push(["in", whole.format(usage.prompt_tokens) + (cached ? `, ${whole.format(cached)} cached` : "")]);
    found.push(["out", whole.format(usage.completion_tokens) + (reasoned ? `, ${whole.format(reasoned)} reasoning` : "")]);
  }
  const end = stopped ? "stopped" : answer.error ? "failed" : finish_reason;
  if (end) found.push(["end", end]);
  return found;
}
