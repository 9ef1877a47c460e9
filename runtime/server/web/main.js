// Puts the page together: fields, buttons and keys.
import { getJson } from "./api.js";
import { Chat } from "./chat.js";
import { exportText, importText } from "./conversation.js";
import { byId, el, setText } from "./dom.js";
import { EngineMonitor } from "./engine_monitor.js";
import { EngineView } from "./engine_view.js";
import { Panels } from "./panels.js";
import { Settings } from "./settings.js";

const NOTE_MS = 10_000;
const KEPT = "dsv4-trt.conversation"; // in sessionStorage: gone with the tab
const prompt = byId("prompt");
let model = null;
let noteTimer = 0;

const panels = new Panels();
const settings = new Settings(() => {
  monitor.poll();
  if (!model) modelName().catch(() => {});
});
const engine = new EngineView();
const monitor = new EngineMonitor(() => settings.key, (state) => engine.show(state));
const chat = new Chat({ settings, modelName, announce, running, focusKey, note, keep });

/** Name of the served model, asked for once. */
async function modelName(signal) {
  if (model) return model;
  const { data } = await getJson("v1/models", settings.key, signal);
  model = data[0].id;
  setText(byId("model"), model);
  document.title = `${model}, dsv4-trt`;
  return model;
}

function announce(text) {
  byId("announce").textContent = text;
}

function running(flag) {
  byId("send").textContent = flag ? "Stop" : "Send";
  byId("send").classList.toggle("stop", flag);
  byId("chat").toggleAttribute("data-running", flag);
}

function focusKey() {
  panels.open("settings");
  byId("key").focus();
}

/** Say something for a while, with a way back if there is one. */
function note(text, undo = null) {
  const button = undo && el("button", { type: "button", class: "quiet" }, "Undo");
  button?.addEventListener("click", () => {
    byId("toast").replaceChildren();
    undo();
    prompt.focus();
  });
  byId("toast").replaceChildren(el("span", {}, text), button ?? "");
  clearTimeout(noteTimer);
  noteTimer = setTimeout(() => byId("toast").replaceChildren(), NOTE_MS);
}

function fit() {
  prompt.style.height = "auto";
  prompt.style.height = `${prompt.scrollHeight + 2}px`;
}

function submit() {
  if (chat.isRunning) return;
  if (!prompt.value.trim() || !chat.send(prompt.value)) return;
  prompt.value = "";
  fit();
}

function save() {
  const text = exportText(chat.turns, settings.texts(), model);
  const address = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  const name = `conversation-${new Date().toISOString().slice(0, 19).replaceAll(":", "")}.json`;
  el("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

/** Keep the conversation for a reload of this tab. */
function keep(turns) {
  try {
    sessionStorage.setItem(KEPT, exportText(turns, {}, model));
  } catch {
    // full or forbidden: the conversation then lasts as long as the page
  }
}

/** Show the conversation that the tab had before it was loaded again. */
function restore() {
  try {
    const { turns } = importText(sessionStorage.getItem(KEPT));
    if (turns.length) chat.replace(turns);
  } catch {
    // none, or not what this page wrote
  }
}

async function load(file) {
  try {
    const { turns, settings: texts } = importText(await file.text());
    if (texts) settings.setTexts(texts);
    chat.replace(turns, `${turns.length} turns imported.`);
  } catch (error) {
    note(`Not imported: ${error.message}`);
  }
}

byId("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  if (chat.isRunning) chat.stop();
  else submit();
});
prompt.addEventListener("input", fit);
prompt.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  submit();
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || event.isComposing) return;
  if (chat.isRunning) chat.stop();
  else panels.closeCovering();
});
byId("clear").addEventListener("click", () => {
  if (chat.turns.length) chat.replace([], "Conversation cleared.");
  prompt.focus();
});
byId("export").addEventListener("click", save);
byId("import").addEventListener("click", () => byId("import-file").click());
byId("import-file").addEventListener("change", (event) => {
  if (event.target.files[0]) load(event.target.files[0]);
  event.target.value = ""; // so that the same file can be taken again
});
document.addEventListener("reveal", (event) => panels.open(event.target.closest("aside").id));

restore();
modelName().catch(() => {}); // the engine's panel says why
monitor.start();
prompt.focus();
