// Elements from data: texts are texts, never markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

/** An element of HTML. */
export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** An element of SVG. */
export function s(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/** Put children in the place of what an element holds, where they differ. */
export function put(node, ...children) {
  node.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

/** Set a text, and touch nothing if it is there. */
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Two or more buttons of which one is pressed. */
export function choice(label, options, chosen, take) {
  const buttons = options.map(([value, text]) =>
    h("button", { type: "button", "aria-pressed": String(value === chosen), onclick: () => take(value) }, text),
  );
  return h("div", { class: "choice", role: "group", "aria-label": label }, ...buttons);
}

let last = 0;

/** A name for an element that no other has. */
export function fresh(word) {
  last += 1;
  return `${word}-${last}`;
}
