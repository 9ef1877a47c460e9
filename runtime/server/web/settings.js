// The settings form: what it says as values for a request, what is wrong with it, what of it is kept.
import { byId, el } from "./dom.js";
import { NUMBERS, readNumber, readSchema, readStops, readTools } from "./fields.js";

const KEPT = "dsv4-trt.settings"; // in localStorage
const KEY = "dsv4-trt.key"; // in sessionStorage: gone with the tab
const TEXTS = ["system", "thinking", "stop", "format", "schema", "tools", "tool_choice"];
const NAMES = [...TEXTS, ...NUMBERS.map(({ name }) => name)];
const EXAMPLE = `[
  {
    "type": "function",
    "function": {
      "name": "get_weather",
      "description": "Weather of a place now",
      "parameters": {
        "type": "object",
        "properties": { "place": { "type": "string" } },
        "required": ["place"]
      }
    }
  }
]`;

/** The form and its values. */
export class Settings {
  #form = byId("settings-form");
  #key = byId("key");
  #defaults;

  /** `onKey` is called when the API key has changed. */
  constructor(onKey) {
    byId("numbers").append(...NUMBERS.map(numberField));
    for (const node of this.#form.querySelectorAll("textarea, .numbers input")) addProblem(node);
    this.#showChoices([]);
    this.#defaults = this.texts();
    this.setTexts(stored(localStorage, KEPT) ?? {});
    this.#key.value = stored(sessionStorage, KEY) ?? "";
    this.#key.addEventListener("change", () => {
      keep(sessionStorage, KEY, this.#key.value);
      onKey();
    });
    this.#form.addEventListener("submit", (event) => event.preventDefault());
    this.#form.addEventListener("input", () => this.#changed());
    byId("settings-reset").addEventListener("click", () => this.setTexts(this.#defaults));
    byId("tools-example").addEventListener("click", () => this.setTexts({ tools: EXAMPLE }));
  }

  get key() {
    return this.#key.value;
  }

  /** The texts of all fields by name, without the key. */
  texts() {
    return Object.fromEntries(NAMES.map((name) => [name, this.#form.elements[name].value]));
  }

  /** Set fields by name; unknown names and values that are no text are left out. */
  setTexts(texts) {
    const choice = texts.tool_choice;
    for (const name of NAMES) {
      if (name !== "tool_choice" && typeof texts[name] === "string") this.#form.elements[name].value = texts[name];
    }
    if (!this.#form.elements.thinking.value) this.#form.elements.thinking.value = "high";
    this.#changed();
    if (typeof choice === "string") this.#form.elements.tool_choice.value = choice;
    if (!this.#form.elements.tool_choice.value) this.#form.elements.tool_choice.value = "auto";
    keep(localStorage, KEPT, this.texts());
  }

  /** The values for a request; null if a field is wrong, which then has the focus and says why. */
  read() {
    const { values, wrong } = this.#readAll();
    if (!wrong.length) return values;
    const node = this.#form.elements[wrong[0]];
    node.dispatchEvent(new CustomEvent("reveal", { bubbles: true }));
    node.focus();
    return null;
  }

  /** Say at a field that the server refused it; whether there is such a field. */
  refuse(param, message) {
    const name = /^response_format/.test(param ?? "") ? "schema" : /^[a-z_]+/.exec(param ?? "")?.[0];
    if (!NAMES.includes(name) || !document.getElementById(`${name}-problem`)) return false;
    this.#problem(name, message);
    return true;
  }

  #changed() {
    byId("schema-field").hidden = this.#form.elements.format.value !== "json_schema";
    this.#readAll();
    keep(localStorage, KEPT, this.texts());
  }

  #readAll() {
    const texts = this.texts();
    const wrong = [];
    const field = (name, reader) => {
      try {
        const value = reader(texts[name]);
        this.#problem(name, "");
        return value;
      } catch (error) {
        this.#problem(name, error.message);
        wrong.push(name);
        return null;
      }
    };
    const numbers = Object.fromEntries(NUMBERS.map((spec) => [spec.name, field(spec.name, (text) => readNumber(spec, text))]));
    const stop = field("stop", readStops);
    const schema = texts.format === "json_schema" ? field("schema", readSchema) : null;
    const tools = field("tools", readTools);
    if (!wrong.includes("tools")) this.#showChoices(tools?.names ?? []);
    const { system, thinking, format } = texts;
    const tool_choice = this.#form.elements.tool_choice.value;
    return { values: { system, thinking, format, numbers, stop, schema, tools, tool_choice }, wrong };
  }

  #showChoices(names) {
    const select = this.#form.elements.tool_choice;
    const choices = [["auto", "auto"], ["none", "none"], ["required", "required: at least one"], ...names.map((name) => [`named:${name}`, name])];
    if ([...select.options].map((option) => option.value).join() === choices.map(([value]) => value).join()) return;
    const before = select.value;
    select.replaceChildren(...choices.map(([value, text]) => el("option", { value }, text)));
    select.value = choices.some(([value]) => value === before) ? before : "auto";
  }

  #problem(name, message) {
    const node = this.#form.elements[name];
    byId(`${name}-problem`).textContent = message;
    if (message) node.setAttribute("aria-invalid", "true");
    else node.removeAttribute("aria-invalid");
  }
}

function numberField({ name, label, whole, unset }) {
  const inputmode = whole ? "numeric" : "decimal";
  const input = el("input", { id: name, name, type: "text", inputmode, placeholder: unset });
  return el("div", { class: "field" }, el("label", { for: name }, label), input);
}

/** A place below a field that says what is wrong with it. */
function addProblem(node) {
  const id = `${node.name}-problem`;
  const described = [node.getAttribute("aria-describedby"), id].filter(Boolean).join(" ");
  node.setAttribute("aria-describedby", described);
  node.after(el("p", { id, class: "problem" }));
}

function stored(storage, name) {
  try {
    return JSON.parse(storage.getItem(name));
  } catch {
    return null; // no storage here, or not what this page wrote
  }
}

function keep(storage, name, value) {
  try {
    storage.setItem(name, JSON.stringify(value));
  } catch {
    // full or forbidden: settings then last as long as the page
  }
}
