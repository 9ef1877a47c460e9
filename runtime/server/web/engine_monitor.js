// Asks the server each second how the engine does, and makes rates of its counters.
import { ApiError, getJson } from "./api.js";

const EVERY_MS = 1000;
const PATIENCE_MS = 3000; // an answer that takes longer counts as none
const KEPT = 60; // samples: the last minute

/**
 * Gives `show` {problem, stats, minute, history, prompt} after each question: an `ApiError` or null, the last
 * numbers, means over the last minute, output and prompt tokens a second.
 */
export class EngineMonitor {
  #key;
  #show;
  #samples = [];
  #timer = 0;
  #asking = false;

  constructor(key, show) {
    this.#key = key;
    this.#show = show;
  }

  /** Ask from now on, but not while the page is out of sight. */
  start() {
    document.addEventListener("visibilitychange", () => this.poll());
    this.poll();
  }

  /** Ask now. */
  async poll() {
    clearTimeout(this.#timer);
    if (document.hidden || this.#asking) return;
    this.#asking = true;
    const begin = performance.now();
    let problem = null;
    try {
      this.#take(await getJson("engine_stats", this.#key(), AbortSignal.timeout(PATIENCE_MS)));
    } catch (error) {
      problem = error instanceof ApiError ? error : new ApiError(0, "the server does not answer in time");
    }
    this.#asking = false;
    this.#show({ problem, ...this.#state() });
    this.#timer = setTimeout(() => this.poll(), Math.max(0, EVERY_MS - (performance.now() - begin)));
  }

  #take(stats) {
    if (!isStats(stats)) throw new ApiError(0, "GET engine_stats gives no engine's numbers");
    const last = this.#samples.at(-1);
    if (last && stats.output_tokens < last.stats.output_tokens) this.#samples = []; // the engine is a new one
    this.#samples.push({ at: performance.now(), stats });
    if (this.#samples.length > KEPT + 1) this.#samples.shift();
  }

  #state() {
    const samples = this.#samples;
    const history = samples.slice(1).map((sample, i) => rate(samples[i], sample, "output_tokens"));
    const [first, last] = [samples[0], samples.at(-1)];
    if (!last) return { stats: null, minute: null, history: [], prompt: null };
    const several = samples.length > 1;
    const prompt = several ? rate(samples.at(-2), last, "prompt_tokens") : null;
    const minute = several ? minuteOf(first.stats, last.stats) : null;
    return { stats: last.stats, minute, history, prompt };
  }
}

function isStats(stats) {
  const numbers = ["output_tokens", "prompt_tokens", "cached_tokens", "hit_rate", "running", "waiting"];
  const parts = ["pages", "requests_finished", "step_seconds", "queue_seconds", "ttft_seconds"];
  return numbers.every((name) => typeof stats?.[name] === "number") && parts.every((name) => stats[name]);
}

function rate(before, after, name) {
  return ((after.stats[name] - before.stats[name]) * 1000) / (after.at - before.at);
}

/** What the last minute alone was like; null where nothing happened in it. */
function minuteOf(before, after) {
  const mean = (name) => {
    const count = after[name].count - before[name].count;
    return count ? (after[name].sum - before[name].sum) / count : null;
  };
  const prompt = after.prompt_tokens - before.prompt_tokens;
  const hits = prompt ? (after.cached_tokens - before.cached_tokens) / prompt : null;
  return { step: mean("step_seconds"), queue: mean("queue_seconds"), ttft: mean("ttft_seconds"), hits };
}
