// JSON laid out for reading, from its text: numbers stay as they were written, however long.

const TOKEN = /"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g;

/** The text with one value a line; text that is no JSON comes back as it is. */
export function prettyJson(text) {
  try {
    JSON.parse(text);
  } catch {
    return text;
  }
  let out = "";
  let depth = 0;
  const tokens = text.match(TOKEN);
  const newline = () => `\n${"  ".repeat(depth)}`;
  tokens.forEach((token, i) => {
    if (token === "{" || token === "[") {
      depth++;
      out += isClosing(tokens[i + 1]) ? token : token + newline();
    } else if (isClosing(token)) {
      depth--;
      out += tokens[i - 1] === "{" || tokens[i - 1] === "[" ? token : newline() + token;
    } else if (token === ",") out += token + newline();
    else out += token === ":" ? ": " : token;
  });
  return out;
}

function isClosing(token) {
  return token === "}" || token === "]";
}
