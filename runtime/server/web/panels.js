// The two side panels: beside the conversation where there is room, over it where there is none.
import { byId } from "./dom.js";

const NARROW = matchMedia("(max-width: 62rem)"); // as in panels.css
const NAMES = ["settings", "engine"];

/** Which panels are open. */
export class Panels {
  constructor() {
    for (const name of NAMES) byId(`${name}-toggle`).addEventListener("click", () => this.#toggle(name));
    NARROW.addEventListener("change", () => this.#arrange());
    this.#arrange();
  }

  /** Open a panel. */
  open(name) {
    if (NARROW.matches) NAMES.forEach((other) => this.#set(other, other === name));
    else this.#set(name, true);
  }

  /** Close the panel that covers the conversation, if one does. */
  closeCovering() {
    const open = NARROW.matches && NAMES.find((name) => !byId(name).hidden);
    if (!open) return;
    this.#set(open, false);
    byId(`${open}-toggle`).focus();
  }

  #toggle(name) {
    if (byId(name).hidden) this.open(name);
    else this.#set(name, false);
  }

  #arrange() {
    NAMES.forEach((name) => this.#set(name, !NARROW.matches));
  }

  #set(name, open) {
    byId(name).hidden = !open;
    byId(`${name}-toggle`).setAttribute("aria-expanded", String(open));
    const covered = NARROW.matches && NAMES.some((other) => !byId(other).hidden);
    for (const id of ["log", "composer"]) byId(id).inert = covered; // what cannot be seen cannot be reached
  }
}
