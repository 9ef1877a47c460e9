// The settings that are more than a text: which numbers, stops, tools and schemas are legal.

const MAX_SEED = 2n ** 64n - 1n;

/** Sampling numbers: `unset` is what the server takes when the field is empty. */
export const NUMBERS = [
  { name: "temperature", label: "Temperature", low: 0, high: 100, unset: "1" },
  { name: "top_p", label: "Top p", low: 0, above: true, high: 1, unset: "1" },
  { name: "top_k", label: "Top k", whole: true, low: 0n, high: 2n ** 31n - 1n, unset: "0, off" },
  { name: "min_p", label: "Min p", low: 0, high: 1, unset: "0, off" },
  { name: "max_tokens", label: "Max tokens", whole: true, low: 1n, high: 2n ** 31n - 1n, unset: "what fits" },
  { name: "seed", label: "Seed", whole: true, low: 0n, high: MAX_SEED, unset: "random" },
  { name: "presence_penalty", label: "Presence", low: -2, high: 2, unset: "0" },
  { name: "frequency_penalty", label: "Frequency", low: -2, high: 2, unset: "0" },
  { name: "repetition_penalty", label: "Repetition", low: 0.01, high: 100, unset: "1" },
];

/** JSON text that is sent as it was written. */
export class RawJson {
  constructor(text) {
    this.text = text;
  }
}

/** A number of `NUMBERS`, a whole one as BigInt; undefined if the text is empty. Raises `Error`. */
export function readNumber(spec, text) {
  const given = text.trim();
  if (!given) return undefined;
  const form = spec.whole ? /^\d+$/ : /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i;
  const value = form.test(given) ? (spec.whole ? BigInt(given) : Number(given)) : null;
  const legal = value !== null && value >= spec.low && value <= spec.high && !(spec.above && value === spec.low);
  if (legal) return value;
  throw new Error(`expected a ${spec.whole ? "whole " : ""}number ${spec.above ? `above ${spec.low},` : `from ${spec.low}`} to ${spec.high}`);
}

/** Stop strings, one a line; a line in double quotes is a JSON string, for newlines and the like. */
export function readStops(text) {
  const lines = text.split("\n").filter((line) => line !== "");
  return lines.map((line) => {
    if (!/^".*"$/.test(line)) return line;
    const value = parseJson(line);
    if (!value) throw new Error("a stop string is empty");
    return value;
  });
}

/** The tools of the request and their names; null if there are none. Raises `Error`. */
export function readTools(text) {
  if (!text.trim()) return null;
  const tools = parseJson(text);
  if (!Array.isArray(tools)) throw new Error("expected a list: [{\"type\": \"function\", \"function\": {…}}]");
  const names = tools.map((tool, i) => toolName(tool, `tool ${i + 1}`));
  const twice = names.find((name, i) => names.indexOf(name) !== i);
  if (twice) throw new Error(`two tools are called ${twice}`);
  return names.length ? { names, json: new RawJson(text) } : null;
}

function toolName(tool, where) {
  if (!isObject(tool) || tool.type !== "function" || !isObject(tool.function))
    throw new Error(`${where}: expected {"type": "function", "function": {…}}`);
  const { name, parameters } = tool.function;
  if (typeof name !== "string" || !/^[\w.-]{1,64}$/.test(name))
    throw new Error(`${where}: function.name is ${JSON.stringify(name) ?? "missing"}; expected letters, digits, _ . and -`);
  if (parameters !== undefined && !isObject(parameters))
    throw new Error(`${where}, ${name}: parameters must be a JSON schema`);
  return name;
}

/** A JSON schema as it was written. Raises `Error`. */
export function readSchema(text) {
  if (!isObject(parseJson(text || "null"))) throw new Error("expected a JSON schema: {\"type\": \"object\", …}");
  return new RawJson(text);
}

/** `JSON.stringify` that sends big integers and raw JSON as they are. */
export function stringify(value) {
  if (value instanceof RawJson) return value.text;
  if (typeof value === "bigint") return value.toString();
  if (Array.isArray(value)) return `[${value.map(stringify).join(",")}]`;
  if (!isObject(value)) return JSON.stringify(value);
  const given = Object.entries(value).filter(([, item]) => item !== undefined);
  return `{${given.map(([key, item]) => `${JSON.stringify(key)}:${stringify(item)}`).join(",")}}`;
}

/** Parsed JSON; the error says the line and column where it is wrong. */
function parseJson(text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    const at = /position (\d+)/.exec(error.message);
    if (!at) throw new Error(`no JSON: ${error.message}`);
    const lines = text.slice(0, Number(at[1])).split("\n");
    const what = error.message.split(" in JSON")[0];
    throw new Error(`no JSON: ${what} at line ${lines.length}, column ${lines.at(-1).length + 1}`);
  }
}

function isObject(value) {
  return value !== null && typeof value === "object" && !Array.isArray(value);
}
