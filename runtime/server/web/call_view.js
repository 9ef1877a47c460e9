// A tool call: its name, its arguments, and its result or the field for it.
import { copyButton, el, setText } from "./dom.js";
import { prettyJson } from "./pretty_json.js";

/** One call inside an answer. */
export class CallView {
  node;
  field = null; // while a result is wanted
  #call;
  #name = el("code", { class: "call-name" });
  #arguments = document.createTextNode("");
  #foot = el("div", { class: "call-foot" });

  constructor(call) {
    this.#call = call;
    const head = el("div", { class: "call-head" }, el("span", { class: "tag" }, "Call"), this.#name);
    head.append(copyButton(() => this.#arguments.data, "arguments"));
    const body = el("pre", { tabindex: 0, role: "region", "aria-label": "Arguments" }, el("code", {}, this.#arguments));
    this.node = el("div", { class: "call" }, head, body, this.#foot);
    this.update();
  }

  /** Show what has come; pretty once it is whole. */
  update(whole = false) {
    const { name, arguments: given } = this.#call.function;
    setText(this.#name, name);
    if (whole) this.#arguments.data = prettyJson(given);
    else this.#arguments.appendData(given.slice(this.#arguments.length));
  }

  /** The answer ended before the call did. */
  cutOff() {
    this.#foot.replaceChildren(el("p", { class: "hint" }, "Cut off: not part of what is sent on."));
  }

  /** Show the result that was given. */
  showResult(text) {
    this.field = null;
    const body = el("pre", { tabindex: 0, role: "region", "aria-label": "Result" }, el("code", {}, text));
    this.#foot.replaceChildren(el("span", { class: "tag" }, "Result"), body);
  }

  /** A field for the result, the `number`th of several; `submit` is called when the reader wants to go on. */
  askResult(submit, number) {
    const id = `result-${crypto.getRandomValues(new Uint32Array(2)).join("")}`;
    const field = el("textarea", { id, rows: 2, class: "mono", spellcheck: "false" });
    field.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      submit();
    });
    this.field = field;
    this.#foot.replaceChildren(el("label", { for: id, class: "tag" }, `Result${number ? ` ${number}` : ""} of ${this.#call.function.name}`), field);
  }
}
