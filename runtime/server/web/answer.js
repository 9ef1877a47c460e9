// One answer as it comes in: its text, its tool calls, its times and counts.

/** A turn of the assistant, and beside it what the page knows of how it was made. */
export class Answer {
  role = "assistant";
  reasoning_content = "";
  content = "";
  tool_calls = [];
  finish_reason = null; // null: not finished, stopped or failed
  usage = null;
  error = null; // an ApiError, or null
  stopped = false; // by the reader of this page
  #start = null; // ms, as performance.now() has them
  #first = null;
  #last = null;

  /** The request goes out. */
  begin(now) {
    this.#start = this.#last = now;
  }

  /** Take in a chunk of the stream. */
  apply(chunk, now) {
    if (chunk.usage) this.usage = chunk.usage;
    const choice = chunk.choices?.[0];
    if (!choice) return;
    const delta = choice.delta ?? {};
    if (delta.reasoning_content || delta.content || delta.tool_calls) {
      this.#first ??= now;
      this.#last = now;
    }
    this.reasoning_content += delta.reasoning_content ?? "";
    this.content += delta.content ?? "";
    for (const part of delta.tool_calls ?? []) this.#applyCall(part);
    this.finish_reason = choice.finish_reason ?? this.finish_reason;
  }

  #applyCall(part) {
    const call = (this.tool_calls[part.index] ??= { id: "", type: "function", function: { name: "", arguments: "" } });
    if (part.id) call.id = part.id;
    call.function.name += part.function?.name ?? "";
    call.function.arguments += part.function?.arguments ?? "";
  }

  /** Whether the model ended by itself, so that its calls are whole. */
  get whole() {
    return this.finish_reason === "stop" || this.finish_reason === "tool_calls";
  }

  /** Milliseconds from the request to the first text; null before. */
  get ttft() {
    return this.#first === null ? null : this.#first - this.#start;
  }

  /** Milliseconds from the request to the last text. */
  get duration() {
    return this.#start === null ? null : this.#last - this.#start;
  }

  /** Output tokens a second after the first; null where the server gave no count. */
  get speed() {
    const tokens = this.usage?.completion_tokens;
    const ms = this.#last - this.#first;
    return tokens > 1 && this.#first !== null && ms > 0 ? ((tokens - 1) * 1000) / ms : null;
  }
}
