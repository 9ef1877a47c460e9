// A labelled bar of one or more parts of a whole, with the same in words for screen readers.
import { el, setText } from "./dom.js";

/** `parts`: names of the segments, in order; they are also CSS classes. */
export class Meter {
  node;
  #bar;
  #parts;
  #figures = el("span", { class: "figures" });

  constructor(label, parts) {
    const name = el("span", { class: "meter-name" }, label);
    this.#parts = parts.map((part) => el("span", { class: `part ${part}` }));
    this.#bar = el("div", { class: "meter", role: "meter", "aria-label": label, "aria-valuemin": 0 }, ...this.#parts);
    this.node = el("div", { class: "meter-row" }, el("div", { class: "meter-head" }, name, this.#figures), this.#bar);
  }

  /** `values`: one of each part; the first is the meter's value. `figures`: beside the label. */
  show(values, total, figures, words) {
    values.forEach((value, i) => (this.#parts[i].style.width = `${total ? (100 * value) / total : 0}%`));
    this.#bar.setAttribute("aria-valuenow", values[0]);
    this.#bar.setAttribute("aria-valuemax", total);
    this.#bar.setAttribute("aria-valuetext", words);
    setText(this.#figures, figures);
  }
}
