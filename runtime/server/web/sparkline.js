// A line of the last values, as SVG that scales with its box.

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 240;
const HEIGHT = 44;

/** Draws up to `count` values, the newest at the right, from 0 to their largest. */
export class Sparkline {
  node = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", class: "spark" });
  #area = svg("path", { class: "spark-area" });
  #line = svg("path", { class: "spark-line" });
  #count;

  constructor(count) {
    this.#count = count;
    this.node.append(this.#area, this.#line);
  }

  /** `label` says in words what is drawn. */
  show(values, label) {
    this.node.setAttribute("aria-label", label);
    const top = Math.max(...values, 1);
    const step = WIDTH / (this.#count - 1);
    const begin = WIDTH - (values.length - 1) * step;
    const points = values.map((value, i) => `${(begin + i * step).toFixed(1)},${(HEIGHT - 1 - (value / top) * (HEIGHT - 4)).toFixed(1)}`);
    const line = points.length > 1 ? `M${points.join("L")}` : "";
    this.#line.setAttribute("d", line);
    this.#area.setAttribute("d", line && `${line}L${WIDTH},${HEIGHT}L${begin.toFixed(1)},${HEIGHT}Z`);
  }
}

function svg(name, attributes) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  return node;
}
