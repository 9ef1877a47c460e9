// What went wrong, in words a reader can act on.
import { el } from "./dom.js";

/** A notice for an `ApiError`, with the buttons that help. `actions`: {again, focusKey}. */
export function noticeOf(error, actions) {
  const title = titleOf(error);
  const wait = error.retryAfter ? el("p", {}, `The server asks to wait ${error.retryAfter} s.`) : null;
  const param = error.param ? el("p", {}, "Field: ", el("code", {}, error.param)) : null;
  const text = el("div", {}, el("strong", {}, title), el("p", {}, error.message), param, wait);
  const buttons = el("div", { class: "actions again" });
  if (error.status === 401 || error.status === 403)
    buttons.append(el("button", { type: "button", click: actions.focusKey }, "Enter the key"));
  buttons.append(el("button", { type: "button", click: actions.again }, "Try again"));
  return el("div", { class: "notice", role: "alert" }, text, buttons);
}

/** A few words for what an `ApiError` is. */
export function titleOf({ status }) {
  if (status === 0) return "No answer";
  if (status === 200) return "The answer broke off";
  if (status === 401 || status === 403) return "The server wants an API key";
  if (status === 429) return "The queue is full";
  if (status === 503) return "The server takes no requests now";
  if (status < 500) return "The server refused the request";
  return "The server failed";
}
