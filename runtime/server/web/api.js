// The server's HTTP API. Addresses are relative to the page, so that it also works behind a prefix.

/** What a request ended in, in the words of the server where it sent any. */
export class ApiError extends Error {
  /** `status`: of HTTP; 0: no answer came, or it broke off. `retryAfter`: seconds, or null. */
  constructor(status, message, { type = null, param = null, retryAfter = null } = {}) {
    super(message);
    Object.assign(this, { status, type, param, retryAfter });
  }
}

/** The JSON that a GET gives. Raises `ApiError`. */
export async function getJson(path, key, signal) {
  const response = await send(path, { headers: headers(key), signal, cache: "no-store" });
  try {
    return await response.json();
  } catch {
    throw new ApiError(response.status, `GET ${path} gave no JSON`);
  }
}

/** The JSON values of the event stream that a POST gives, until `[DONE]`. Raises `ApiError`. */
export async function* postStream(path, body, key, signal) {
  const type = { "Content-Type": "application/json", Accept: "text/event-stream" };
  const response = await send(path, { method: "POST", body, headers: { ...headers(key), ...type }, signal });
  for await (const data of events(response.body)) {
    if (data === "[DONE]") return;
    const value = parse(data, response.status);
    if (value.error) throw failure(response.status, value.error, null);
    yield value;
  }
  throw new ApiError(0, "the stream ended before its [DONE]: the answer may not be whole");
}

/** The data of each server-sent event of a body of bytes, however it is split. */
export async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let data = [];
  try {
    for (;;) {
      const { value, done } = await read(reader);
      if (done) return;
      rest += value;
      const end = rest.endsWith("\r") ? -1 : undefined; // its \n may be in the next piece
      const lines = rest.slice(0, end).split(/\r\n|\n|\r/);
      rest = lines.pop() + (end ? "\r" : "");
      for (const line of lines) {
        if (line.startsWith("data:")) data.push(line.slice(line[5] === " " ? 6 : 5));
        if (line !== "" || !data.length) continue;
        yield data.join("\n");
        data = [];
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

async function read(reader) {
  try {
    return await reader.read();
  } catch (error) {
    throw error.name === "AbortError" ? error : new ApiError(0, "the connection broke in the middle of the answer");
  }
}

async function send(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError" || error.name === "TimeoutError") throw error;
    throw new ApiError(0, "the server does not answer");
  }
  if (response.ok) return response;
  const text = await response.text().catch(() => "");
  let told = null;
  try {
    told = JSON.parse(text).error;
  } catch {
    // a proxy's page, or nothing
  }
  throw failure(response.status, told ?? text.slice(0, 300), response.headers.get("Retry-After"));
}

function failure(status, told, retryAfter) {
  const error = typeof told === "object" ? told : { message: told };
  const seconds = retryAfter !== null && /^\d+$/.test(retryAfter) ? Number(retryAfter) : null;
  const message = String(error.message || `the server answered ${status}`);
  return new ApiError(status, message, { type: error.type, param: error.param, retryAfter: seconds });
}

function parse(data, status) {
  try {
    const value = JSON.parse(data);
    if (value !== null && typeof value === "object") return value;
  } catch {
    // said below
  }
  throw new ApiError(status, `the stream holds what is no JSON object: ${data.slice(0, 80)}`);
}

function headers(key) {
  return key ? { Authorization: `Bearer ${key}` } : {};
}
