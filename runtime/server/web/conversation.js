// The turns of a conversation: as messages of the API, and as a file that can be read again.
import { Answer } from "./answer.js";

const FORMAT = "dsv4-trt.conversation";
const ROLES = ["system", "user", "assistant", "tool"];

/** What the API is sent. Reasoning goes back too: between tool calls the model needs it. */
export function apiMessages(turns, system) {
  const messages = system ? [{ role: "system", content: system }] : [];
  for (const turn of turns) {
    if (turn.role !== "assistant") messages.push(turn);
    else if (turn.content || turn.reasoning_content || callsOf(turn).length) messages.push(assistant(turn));
  }
  return messages;
}

function assistant(turn) {
  const message = { role: "assistant", content: turn.content };
  if (turn.reasoning_content) message.reasoning_content = turn.reasoning_content;
  if (callsOf(turn).length) message.tool_calls = callsOf(turn);
  return message;
}

/** The calls of an answer that can be answered: none of one that was cut off. */
export function callsOf(turn) {
  return turn.role === "assistant" && turn.whole ? turn.tool_calls : [];
}

/** The last answer's calls that have no result. */
export function pendingCalls(turns) {
  const at = turns.findLastIndex((turn) => turn.role === "assistant");
  if (at < 0) return [];
  const answered = new Set(turns.slice(at + 1).map((turn) => turn.tool_call_id));
  return callsOf(turns[at]).filter((call) => !answered.has(call.id));
}

/** The conversation as the text of a file; `settings` without the key. */
export function exportText(turns, settings, model) {
  const messages = turns.map((turn) => {
    if (turn.role !== "assistant") return turn;
    const { finish_reason, usage } = turn;
    return { ...assistant(turn), finish_reason, usage };
  });
  const head = { format: FORMAT, version: 1, exported_at: new Date().toISOString(), model };
  return JSON.stringify({ ...head, settings, messages }, null, 2);
}

/**
 * Turns and settings of such a file, or of any list of API messages; `settings` is null if it has none.
 * Raises `Error` that says what is wrong.
 */
export function importText(text) {
  let data;
  try {
    data = JSON.parse(text);
  } catch (error) {
    throw new Error(`the file is no JSON: ${error.message}`);
  }
  const messages = Array.isArray(data) ? data : data?.messages;
  if (!Array.isArray(messages)) throw new Error("the file has no list of messages");
  if (data.format !== undefined && (data.format !== FORMAT || data.version !== 1))
    throw new Error(`the file has format ${data.format} ${data.version}; expected ${FORMAT} 1`);
  const turns = messages.map(readTurn);
  const system = turns.filter((turn) => turn.role === "system").map((turn) => turn.content);
  const settings = { ...(data.settings ?? {}), ...(system.length ? { system: system.join("\n\n") } : {}) };
  const kept = turns.filter((turn) => turn.role !== "system");
  checkResults(kept);
  return { turns: kept, settings: Object.keys(settings).length ? settings : null };
}

function readTurn(message, i) {
  const where = `messages[${i}]`;
  if (!ROLES.includes(message?.role)) throw new Error(`${where}.role is ${show(message?.role)}; expected one of ${ROLES.join(", ")}`);
  const content = readText(message.content ?? (message.role === "assistant" ? "" : undefined), `${where}.content`);
  if (message.role === "tool") {
    return { role: "tool", tool_call_id: readText(message.tool_call_id, `${where}.tool_call_id`), content };
  }
  if (message.role !== "assistant") return { role: message.role, content };
  const calls = message.tool_calls ?? [];
  if (!Array.isArray(calls)) throw new Error(`${where}.tool_calls is ${show(calls)}; expected a list`);
  return Object.assign(new Answer(), {
    content,
    reasoning_content: readText(message.reasoning_content ?? "", `${where}.reasoning_content`),
    tool_calls: calls.map((call, j) => readCall(call, `${where}.tool_calls[${j}]`)),
    finish_reason: message.finish_reason ?? (calls.length ? "tool_calls" : "stop"),
    usage: message.usage ?? null,
  });
}

function readCall(call, where) {
  const name = readText(call?.function?.name, `${where}.function.name`);
  const given = readText(call.function.arguments, `${where}.function.arguments`);
  return { id: readText(call.id, `${where}.id`), type: "function", function: { name, arguments: given } };
}

function checkResults(turns) {
  let known = new Set();
  turns.forEach((turn) => {
    if (turn.role === "assistant") known = new Set(turn.tool_calls.map((call) => call.id));
    if (turn.role === "tool" && !known.has(turn.tool_call_id))
      throw new Error(`the result of ${show(turn.tool_call_id)} does not follow an answer that calls it`);
  });
}

function readText(value, where) {
  if (typeof value !== "string") throw new Error(`${where} is ${show(value)}; expected a text`);
  return value;
}

function show(value) {
  return JSON.stringify(value)?.slice(0, 80) ?? "missing";
}
