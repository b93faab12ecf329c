// One module, two hosts: `render` for a live notebook (anywidget), `mountPage` for pages.
// A picture's place among the values is its key: the controls' indices, joined.
// `host.js` comes before it.

const KEPT = 300; // pictures kept; the oldest goes first

function inputFor(control) {
  if (control.kind === "choice") {
    const select = element("select", OWN_KEYS);
    control.texts.forEach((text, index) => select.append(element("option", { value: index }, text)));
    return select;
  }
  if (control.kind === "number") return element("input", { type: "number", step: "any", ...OWN_KEYS });
  if (control.kind === "switch") return element("input", { type: "checkbox", ...OWN_KEYS });
  return element("input", { type: "range", min: 0, max: control.texts.length - 1, step: 1, ...OWN_KEYS });
}

function readIndex(input) {
  if (input.type === "checkbox") return Number(input.checked);
  return input.value === "" ? NaN : Number(input.value);
}

function writeIndex(input, output, control, index) {
  if (input.type === "checkbox") input.checked = Boolean(index);
  else input.value = index;
  if (output) {
    output.value = control.texts[index];
    input.setAttribute("aria-valuetext", control.texts[index]);
  }
}

// Builds the controls and the picture inside `root`; `moved(indices, place)` hears of moves.
function build(root, state, moved) {
  const inputs = [];
  const outputs = [];
  const controls = element("div", { class: "course-scrub-controls", role: "group", "aria-label": state.group });
  state.controls.forEach((control, place) => {
    const input = inputFor(control);
    const output = control.kind === "slider" ? element("output", { "aria-hidden": "true" }) : null;
    const tell = () => {
      const indices = inputs.map(readIndex);
      if (indices.every(Number.isFinite)) moved(indices, place);
    };
    // A number counts when it is finished, not at each digit.
    input.addEventListener(control.kind === "number" ? "change" : "input", tell);
    input.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || withModifier(event)) return;
      event.stopPropagation(); // a notebook would take it before the field does
      tell();
    });
    inputs.push(input);
    outputs.push(output);
    // A label around its control needs no id, which would have to differ over all widgets.
    const label = element("label", {}, element("span", {}, control.label), input);
    const line = element("div", { class: `course-scrub-line course-scrub-${control.kind}` }, label);
    if (output) line.append(output);
    controls.append(line);
  });
  const [width, height] = state.size;
  const frame = element("div", { class: "course-scrub-frame" });
  frame.style.maxWidth = `${width}px`;
  frame.style.background = state.ground;
  frame.style.aspectRatio = `${width} / ${height}`;
  // A screen reader hears what the new picture shows; sighted readers see it.
  const spoken = element("p", { class: "course-scrub-spoken", "aria-live": "polite" });
  const failure = element("p", { class: "course-scrub-failure", role: "alert" });
  failure.hidden = true;
  root.replaceChildren(controls, frame, spoken, failure);
  giveNotebookItsKeys(controls);
  return {
    inputs,
    write(indices) {
      indices.forEach((index, place) => writeIndex(inputs[place], outputs[place], state.controls[place], index));
    },
    show(image) {
      frame.replaceChildren(image);
      failure.hidden = true;
      if (spoken.dataset.ready) spoken.textContent = image.alt;
      spoken.dataset.ready = "yes"; // silent about the first picture
    },
    fail(text) {
      if (failure.hidden || failure.textContent !== text) failure.textContent = text;
      failure.hidden = false;
    },
  };
}

async function decoded(src, alt) {
  const image = element("img", { alt });
  image.src = src;
  await image.decode(); // so that showing it never shows a blank first
  return image;
}

// The picture that stands in for a widget without a kernel goes once the widget stands.
function hideStill(el, id) {
  if (!el.isConnected) {
    requestAnimationFrame(() => hideStill(el, id));
    return;
  }
  for (const still of document.querySelectorAll(`[data-course-still="${id}"]`)) {
    (still.closest(".jp-OutputArea-child") ?? still).style.display = "none";
  }
}

function render({ model, el }) {
  const state = model.get("scrub");
  const kept = new Map();
  let wanted = model.get("indices").join();
  let busy = false;

  const ask = () => {
    busy = true;
    model.send({ indices: wanted.split(",").map(Number) });
  };
  const view = build(el, state, (indices) => {
    view.write(indices);
    model.set("indices", indices);
    model.save_changes();
    wanted = indices.join();
    if (kept.has(wanted)) view.show(kept.get(wanted));
    else if (!busy) ask();
  });
  el.classList.add("course-scrub");
  hideStill(el, model.get("still"));
  view.write(model.get("indices"));

  const keep = (key, image) => {
    kept.set(key, image);
    if (kept.size > KEPT) {
      const [oldest] = kept.keys();
      URL.revokeObjectURL(kept.get(oldest).src);
      kept.delete(oldest);
    }
  };
  const receive = async (key, bytes, alt) => {
    const url = URL.createObjectURL(new Blob([bytes], { type: "image/png" }));
    keep(key, await decoded(url, alt));
    // While dragging, each picture that arrives is newer than the one on screen.
    if (key === wanted || !kept.has(wanted)) view.show(kept.get(key));
  };
  const answered = async (message, buffers) => {
    const key = message.indices.join();
    if (message.failed) {
      if (key === wanted) view.fail(message.failed);
    } else {
      await receive(key, buffers[0], message.alt);
    }
    busy = false;
    if (key !== wanted && !kept.has(wanted)) ask();
  };
  const first = state.controls.map((control) => control.start).join();
  receive(first, model.get("picture"), state.alt).then(() => {
    if (!kept.has(wanted) && !busy) ask();
  });
  model.on("msg:custom", answered);
  return () => {
    model.off("msg:custom", answered);
    kept.forEach((image) => URL.revokeObjectURL(image.src));
  };
}

function mountFigure(figure) {
  const state = JSON.parse(figure.querySelector("script").textContent);
  const starts = state.controls.map((control) => control.start);
  const images = new Map();
  for (const [key, { src, alt }] of Object.entries(state.frames)) {
    const image = element("img", { alt });
    image.src = src;
    images.set(key, image);
  }
  const view = build(figure, state, (indices, place) => {
    // Frames exist along each control's own line: moving one sends the others home.
    const next = starts.map((start, index) => (index === place ? indices[place] : start));
    view.write(next);
    view.show(images.get(next.join()));
  });
  view.write(starts);
  view.show(images.get(starts.join()));
  view.inputs.forEach((input) => {
    input.disabled = input.type === "number"; // a page has frames, not a kernel
  });
  if (state.note) figure.append(element("figcaption", {}, state.note));
}

export function mountPage(root) {
  root.querySelectorAll("figure.course-scrub:not([data-mounted])").forEach((figure) => {
    figure.dataset.mounted = "yes";
    mountFigure(figure);
  });
}

export default { render };
