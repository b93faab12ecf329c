// What the course's widgets share: making elements, and keeping peace with the page around.

function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

// JupyterLab takes arrow keys and letters from a control unless the control itself says no.
const OWN_KEYS = { "data-lm-suppress-shortcuts": "true" };

const withModifier = (event) => event.shiftKey || event.ctrlKey || event.altKey || event.metaKey;

// That attribute keeps every key, and two belong to the notebook wherever the focus is:
// Escape goes back to the cell, Enter with Shift, Ctrl or Alt runs it.
function giveNotebookItsKeys(root) {
  root.addEventListener("keydown", (event) => {
    const runs = event.key === "Enter" && withModifier(event);
    const cell = root.closest(".jp-Cell");
    if (!cell || !(runs || event.key === "Escape")) return;
    event.preventDefault();
    event.stopPropagation();
    cell.focus();
    if (runs) cell.dispatchEvent(new KeyboardEvent("keydown", event)); // this time from the cell
  });
}
