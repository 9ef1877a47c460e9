// The list of turns on the page, and keeping its end in sight while it grows.
import { AnswerView } from "./answer_view.js";
import { byId, el } from "./dom.js";
import { UserView } from "./user_view.js";

const NEAR = 48; // px from the end within which the list follows it

/** Shows turns in order. `actions`: {resend(turn, text), again, focusKey, sendResults}. */
export class TurnsView {
  #log = byId("log");
  #list = byId("turns");
  #latest = byId("latest");
  #actions;
  #views = [];
  #follows = true;
  #send = el("button", { type: "button", class: "primary send-results" }, "Send results");

  constructor(actions) {
    this.#actions = actions;
    this.#send.addEventListener("click", actions.sendResults);
    this.#latest.addEventListener("click", () => this.toEnd());
    this.#log.addEventListener("scroll", () => this.#scrolled(), { passive: true });
  }

  /** Show these turns instead of all others. */
  show(turns) {
    this.#views = [];
    this.#list.replaceChildren();
    turns.forEach((turn) => this.add(turn, true));
    this.toEnd();
  }

  /** Add a turn at the end; an answer that is `finished` is shown whole. The answer's view comes back. */
  add(turn, finished = false) {
    byId("empty").hidden = true;
    if (turn.role === "tool") {
      this.#callView(turn.tool_call_id)?.showResult(turn.content);
      return null;
    }
    const view = turn.role === "assistant" ? new AnswerView(turn, this.#actions) : new UserView(turn, (text) => this.#actions.resend(turn, text));
    this.#views.push({ turn, view });
    this.#list.append(view.node);
    if (finished && turn.role === "assistant") view.finish();
    this.#markLast();
    return view;
  }

  /** The place of nothing, where there are no turns. */
  showEmpty() {
    this.show([]);
    byId("empty").hidden = false;
  }

  /** Fields for the results of these calls of the last answer. */
  askResults(calls) {
    const views = calls.map((call) => this.#callView(call.id)).filter(Boolean);
    views.forEach((view, i) => view.askResult(this.#actions.sendResults, views.length > 1 && i + 1));
    if (!views.length) return;
    views.at(-1).node.after(this.#send);
    const prompt = byId("prompt");
    if (document.activeElement === prompt && !prompt.value) views[0].field.focus();
  }

  /** The field for the result of this call has the focus. */
  focusResult(call) {
    this.#callView(call.id).field.focus();
  }

  /** The results that were entered, by call id; the field of the first that is empty has the focus. */
  takeResults(calls) {
    const found = calls.map((call) => ({ id: call.id, field: this.#callView(call.id).field }));
    const empty = found.find(({ field }) => !field.value);
    if (empty) empty.field.focus();
    else this.#send.remove();
    return empty ? null : found.map(({ id, field }) => ({ role: "tool", tool_call_id: id, content: field.value }));
  }

  /** The list has grown: keep its end in sight if it was. */
  grown() {
    if (this.#follows) this.#log.scrollTop = this.#log.scrollHeight;
  }

  /** Go to the end and follow it. */
  toEnd() {
    this.#follows = true;
    this.#latest.hidden = true;
    this.grown();
  }

  /** The regenerate button stands at the last answer alone, where nothing comes after it. */
  #markLast() {
    this.#views.forEach(({ turn, view }, i) => {
      if (turn.role === "assistant") view.showLast(i === this.#views.length - 1);
    });
  }

  #callView(id) {
    const last = this.#views.findLast(({ turn }) => turn.role === "assistant");
    return last?.view.calls[last.turn.tool_calls.findIndex((call) => call.id === id)];
  }

  #scrolled() {
    const { scrollHeight, scrollTop, clientHeight } = this.#log;
    this.#follows = scrollHeight - scrollTop - clientHeight < NEAR;
    this.#latest.hidden = this.#follows;
  }
}
