// Elements made without HTML text: whatever a server or a model says can only become text.

/** An element. `attributes`: null and false are left out, true is set empty, functions are listeners. */
export function el(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") node.addEventListener(key, value);
    else node.setAttribute(key, value === true ? "" : String(value));
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

/** The element with this id, which must be there. */
export function byId(id) {
  const node = document.getElementById(id);
  if (!node) throw new Error(`the page has no element #${id}`);
  return node;
}

/** A quiet button that says for a moment that it has copied `text()`. */
export function copyButton(text, what) {
  const button = el("button", { type: "button", class: "quiet", "aria-label": `Copy ${what}` }, "Copy");
  button.addEventListener("click", async () => {
    let said = "Copied";
    try {
      await navigator.clipboard.writeText(text());
    } catch {
      said = "Not allowed";
    }
    button.textContent = said;
    setTimeout(() => (button.textContent = "Copy"), 1500);
  });
  return button;
}

/** Set text only where it changes, so that nothing is laid out or read out again for nothing. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}
