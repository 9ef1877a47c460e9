// The conversation at work: sends it, takes in the answer, stops, asks again.
import { Answer } from "./answer.js";
import { ApiError, postStream } from "./api.js";
import { pendingCalls } from "./conversation.js";
import { titleOf } from "./notice.js";
import { requestBody } from "./request_body.js";
import { TurnsView } from "./turns_view.js";

const SHARE = 4; // drawing takes at most one part in five of the time
const READ_OUT = 600; // characters of an answer for a screen reader; the rest is there to be read

/** `page`: {settings, modelName(), announce(text), running(flag), focusKey(), note(text, undo), keep(turns)}. */
export class Chat {
  turns = [];
  #page;
  #view;
  #abort = null;

  constructor(page) {
    this.#page = page;
    this.#view = new TurnsView({
      resend: (turn, text) => this.#resend(turn, text),
      again: () => this.#again(),
      focusKey: page.focusKey,
      sendResults: () => this.#sendResults(),
    });
  }

  get isRunning() {
    return this.#abort !== null;
  }

  /** Send a message; whether it went out. */
  send(text) {
    const pending = pendingCalls(this.turns);
    if (pending.length) {
      this.#page.note("The model waits for the results of its calls.");
      this.#view.focusResult(pending[0]);
      return false;
    }
    return this.#ask({ role: "user", content: text });
  }

  /** Stop the answer that is being made; what has come stays. */
  stop() {
    this.#abort?.abort();
  }

  /** Show other turns; what was there can be had back. */
  replace(turns, said) {
    const before = this.turns;
    this.stop();
    this.#show(turns);
    if (said) this.#page.note(said, before.length ? () => this.replace(before) : null);
  }

  #show(turns) {
    this.turns = turns;
    if (turns.length) this.#view.show(turns);
    else this.#view.showEmpty();
    this.#view.askResults(pendingCalls(turns));
    this.#page.keep(turns);
  }

  #resend(turn, text) {
    const at = this.turns.indexOf(turn);
    const before = this.turns;
    if (this.isRunning || !this.#page.settings.read()) return;
    this.#show(before.slice(0, at));
    this.#ask({ role: turn.role, content: text });
    if (before.length - at > 2) this.#page.note("Later turns were dropped.", () => this.replace(before));
  }

  #again() {
    const at = this.turns.findLastIndex((turn) => turn.role === "assistant");
    if (this.isRunning || at < 0 || !this.#page.settings.read()) return;
    this.#show(this.turns.slice(0, at));
    this.#ask();
  }

  #sendResults() {
    const results = this.isRunning ? null : this.#view.takeResults(pendingCalls(this.turns));
    if (results) this.#ask(...results);
  }

  /** Add turns and ask for an answer to all; whether the settings allowed it. */
  #ask(...added) {
    const settings = this.isRunning ? null : this.#page.settings.read();
    if (!settings) return false;
    for (const turn of added) {
      this.turns.push(turn);
      this.#view.add(turn);
    }
    this.#run(settings);
    return true;
  }

  async #run(settings) {
    const sent = [...this.turns];
    const answer = new Answer();
    const turns = this.turns; // another list may take its place while this runs
    turns.push(answer);
    const view = this.#view.add(answer);
    this.#view.toEnd();
    const abort = (this.#abort = new AbortController());
    this.#page.running(true);
    const drawing = this.#draw(answer, view, abort.signal);
    try {
      answer.begin(performance.now());
      const body = requestBody(await this.#page.modelName(abort.signal), sent, settings);
      const chunks = postStream("v1/chat/completions", body, this.#page.settings.key, abort.signal);
      for await (const chunk of chunks) answer.apply(chunk, performance.now());
    } catch (error) {
      if (abort.signal.aborted) answer.stopped = true;
      else answer.error = error instanceof ApiError ? error : new ApiError(0, `the page failed: ${error.message}`);
    }
    drawing();
    this.#finish(answer, view, turns);
  }

  #finish(answer, view, turns) {
    this.#abort = null;
    view.finish();
    view.showLast(true);
    this.#page.running(false);
    if (turns !== this.turns) return;
    if (answer.error?.status === 400) this.#page.settings.refuse(answer.error.param, answer.error.message);
    this.#page.keep(turns);
    const pending = pendingCalls(turns);
    this.#view.askResults(pending);
    this.#view.grown();
    this.#page.announce(spoken(answer, pending));
  }

  /** Draw the answer as it grows, once a frame at most; the function that ends it comes back. */
  #draw(answer, view, signal) {
    let next = 0;
    let frame = 0;
    const start = performance.now();
    const draw = () => {
      frame = requestAnimationFrame(draw);
      const begin = performance.now();
      if (begin < next || signal.aborted) return;
      view.update();
      view.showProgress(begin - start);
      this.#view.grown();
      next = performance.now() + SHARE * (performance.now() - begin);
    };
    frame = requestAnimationFrame(draw);
    return () => cancelAnimationFrame(frame);
  }
}

function spoken(answer, pending) {
  if (answer.error) return titleOf(answer.error);
  const end = answer.stopped ? "Answer stopped." : "Answer finished.";
  const names = pending.map((call) => call.function.name).join(", ");
  const calls = pending.length ? ` The model calls ${names} and waits for results.` : "";
  const more = answer.content.length > READ_OUT ? " and so on." : "";
  return `${end}${calls} ${answer.content.slice(0, READ_OUT)}${more}`;
}
