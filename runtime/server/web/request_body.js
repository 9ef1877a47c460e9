// The body of a chat request, from the conversation and the settings.
import { apiMessages } from "./conversation.js";
import { stringify } from "./fields.js";

/** JSON text for POST v1/chat/completions. */
export function requestBody(model, turns, settings) {
  const { tools, tool_choice, stop } = settings;
  return stringify({
    model,
    messages: apiMessages(turns, settings.system),
    stream: true,
    stream_options: { include_usage: true, continuous_usage_stats: true },
    ...thinking(settings.thinking),
    ...settings.numbers,
    stop: stop.length ? stop : undefined,
    tools: tools?.json,
    tool_choice: tools ? toolChoice(tool_choice) : undefined,
    response_format: responseFormat(settings),
  });
}

function thinking(level) {
  if (level === "off") return { thinking: { type: "disabled" } };
  return { thinking: { type: "enabled" }, reasoning_effort: level };
}

function toolChoice(choice) {
  const named = choice.startsWith("named:") ? choice.slice("named:".length) : null;
  return named === null ? choice : { type: "function", function: { name: named } };
}

function responseFormat({ format, schema }) {
  if (format === "text") return undefined;
  if (format === "json_object") return { type: "json_object" };
  return { type: "json_schema", json_schema: { name: "answer", schema, strict: true } };
}
