// A message of the user on the page, and the field to change it.
import { copyButton, el } from "./dom.js";

/** Shows a user's turn; `resend(text)` is called when it was changed. */
export class UserView {
  node;
  #turn;
  #resend;
  #body = el("div", { class: "body" });
  #foot = el("footer", { class: "foot" });

  constructor(turn, resend) {
    this.#turn = turn;
    this.#resend = resend;
    const head = el("header", { class: "who" }, turn.role);
    this.node = el("li", { class: "turn user" }, el("article", { "aria-label": "User message" }, head, this.#body, this.#foot));
    this.#show();
  }

  #show() {
    const edit = el("button", { type: "button", class: "quiet", click: () => this.#edit() }, "Edit");
    this.#body.replaceChildren(el("p", { class: "plain" }, this.#turn.content));
    this.#foot.replaceChildren(el("div", { class: "actions" }, copyButton(() => this.#turn.content, "message"), edit));
    return edit;
  }

  #edit() {
    const field = el("textarea", { rows: 3, "aria-label": "Message, changed" });
    field.value = this.#turn.content;
    const send = () => {
      if (field.value.trim()) this.#resend(field.value);
    };
    const cancel = () => this.#show().focus();
    field.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        send();
      } else if (event.key === "Escape") {
        event.stopPropagation();
        cancel();
      }
    });
    const buttons = [["Send", "primary", send], ["Cancel", "quiet", cancel]];
    const nodes = buttons.map(([text, style, click]) => el("button", { type: "button", class: style, click }, text));
    this.#body.replaceChildren(field);
    this.#foot.replaceChildren(el("div", { class: "actions" }, ...nodes));
    field.focus();
  }
}
