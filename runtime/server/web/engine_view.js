// The engine as it is now: load, throughput, KV pools, prefix cache, requests.
import { byId, el, setText } from "./dom.js";
import { Meter } from "./meter.js";
import { titleOf } from "./notice.js";
import { Sparkline } from "./sparkline.js";

const POOLS = ["large", "middle", "small"];
const HISTORY = 60;
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/** Shows what an `EngineMonitor` gives. */
export class EngineView {
  #load = new Meter("Running", ["held"]);
  #pools = Object.fromEntries(POOLS.map((name) => [name, new Meter(name, ["held", "cached"])]));
  #spark = new Sparkline(HISTORY);
  #speed = el("span", { class: "figure" }, "–");
  #lists = {};

  constructor() {
    const unit = el("span", { class: "unit" }, "output tok/s");
    byId("engine-body").append(
      section("Load", this.#load.node, this.#list("load", ["waiting", "refused", "preempted"])),
      section("Throughput", el("p", {}, this.#speed, " ", unit), this.#spark.node, this.#list("speed", ["peak in a minute", "prompt tok/s", "step", "queue", "TTFT"])),
      section("KV pages", ...POOLS.map((name) => this.#pools[name].node), legend()),
      section("Prefix cache", this.#list("cache", ["hit rate", "in the last minute"])),
      section("Requests", this.#list("requests", ["accepted", "stop", "length", "cancelled", "timeout", "error"])),
      section("Server", this.#list("server", ["uptime", "max_batch_size", "max_seq_len"])),
    );
  }

  /** `problem`: an `ApiError` if the last question had no answer. */
  show({ problem, stats, minute, history, prompt }) {
    this.#showState(problem, stats);
    byId("engine-body").toggleAttribute("data-stale", problem !== null);
    if (!stats) return;
    this.#showLoad(stats);
    this.#showSpeed(history, prompt, minute);
    this.#showPools(stats.pages);
    this.#fill("cache", [percent(stats.hit_rate), percent(minute?.hits)]);
    const { stop, length, cancelled, timeout, error } = stats.requests_finished;
    this.#fill("requests", [stats.requests_accepted, stop, length, cancelled, timeout, error].map(count));
    this.#fill("server", [span(stats.uptime_s), count(stats.max_batch_size), count(stats.max_seq_len)]);
  }

  #showState(problem, stats) {
    const good = !problem && !stats.is_draining;
    byId("state").dataset.state = good ? "good" : problem?.status === 0 ? "gone" : "warn";
    setText(byId("state-text"), good ? "ready" : problem ? stateOf(problem) : "draining");
    const box = byId("engine-problem");
    box.hidden = good;
    const old = stats ? " The numbers below are the last that came." : "";
    if (problem) setText(box, `${titleOf(problem)}: ${problem.message.replace(/\.$/, "")}.${old}`);
    else if (!good) setText(box, "The server drains: it finishes what runs, takes nothing new, and then ends.");
  }

  #showLoad({ running, waiting, max_batch_size, requests_refused, preemptions }) {
    const words = `${running} of at most ${max_batch_size}`;
    this.#load.show([running], max_batch_size, `${count(running)} / ${count(max_batch_size)}`, words);
    this.#fill("load", [waiting, requests_refused, preemptions].map(count));
  }

  #showSpeed(history, prompt, minute) {
    const now = history.at(-1);
    const peak = Math.max(...history, 0);
    setText(this.#speed, now === undefined ? "–" : speedOf(now));
    this.#spark.show(history, `Output tokens a second in the last minute: now ${speedOf(now ?? 0)}, peak ${speedOf(peak)}`);
    const values = [speedOf(peak), prompt === null ? "–" : speedOf(prompt)];
    this.#fill("speed", [...values, seconds(minute?.step), seconds(minute?.queue), seconds(minute?.ttft)]);
  }

  #showPools(pages) {
    for (const name of POOLS) {
      const { held, cached, free, total } = pages[name] ?? { held: 0, cached: 0, free: 0, total: 0 };
      const words = `${held} held, ${cached} cached, ${free} free of ${total} pages`;
      this.#pools[name].show([held, cached], total, `${count(held)} · ${count(cached)} · ${count(free)}`, words);
    }
  }

  #list(name, terms) {
    this.#lists[name] = terms.map(() => el("dd", {}, "–"));
    return el("dl", {}, ...terms.map((term, i) => el("div", {}, el("dt", {}, term), this.#lists[name][i])));
  }

  #fill(name, values) {
    values.forEach((value, i) => setText(this.#lists[name][i], value));
  }
}

function stateOf({ status }) {
  if (status === 0) return "no answer";
  if (status === 401 || status === 403) return "API key wanted";
  return status === 503 ? "takes no requests" : `error ${status}`;
}

function section(title, ...children) {
  return el("section", {}, el("h3", {}, title), ...children);
}

function legend() {
  const names = ["held", "cached", "free"].map((name) => el("span", { class: `key ${name}` }, name));
  return el("p", { class: "legend", "aria-hidden": "true" }, ...names);
}

function count(value) {
  return value === undefined || value === null ? "–" : whole.format(value);
}

function speedOf(value) {
  return value && value < 100 ? value.toFixed(1) : whole.format(value);
}

function percent(share) {
  return share === undefined || share === null ? "–" : `${(100 * share).toFixed(1)} %`;
}

function seconds(value) {
  if (value === undefined || value === null) return "–";
  return value < 1 ? `${(1000 * value).toFixed(value < 0.1 ? 1 : 0)} ms` : `${value.toFixed(1)} s`;
}

function span(value) {
  if (value === undefined) return "–";
  const [d, h, m] = [Math.floor(value / 86400), Math.floor(value / 3600) % 24, Math.floor(value / 60) % 60];
  return d ? `${d} d ${h} h` : h ? `${h} h ${m} min` : m ? `${m} min ${Math.floor(value % 60)} s` : `${Math.floor(value)} s`;
}
