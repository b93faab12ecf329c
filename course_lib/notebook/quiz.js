// One module, two hosts: `render` for a live notebook (anywidget), `mountPage` for pages.

// JupyterLab takes arrow keys and letters from a control unless the control itself says no.
const OWN_KEYS = { "data-lm-suppress-shortcuts": "true" };

function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

// Texts come from the course's own question bank, escaped, with MathML for formulas.
function rich(tag, attributes, html) {
  const node = element(tag, attributes);
  node.innerHTML = html;
  return node;
}

function unlock(encoded) {
  const bytes = Uint8Array.from(atob(encoded), (letter) => letter.charCodeAt(0));
  return JSON.parse(new TextDecoder().decode(bytes));
}

// "0,25", "−1/6" and "1e-3" are numbers to a reader.
function readNumber(text) {
  const plain = text.trim().replace(/[−–]/g, "-").replace(",", ".");
  const parts = plain.split("/");
  if (!plain || parts.length > 2 || parts.some((part) => !part.trim())) return NaN;
  return parts.map(Number).reduce((top, bottom) => top / bottom);
}

function gradeChoice(key, chosen) {
  const right = chosen.join() === key.rights.join();
  // One sentence for each option chosen; a right choice of several needs no repeating.
  const said = chosen.filter((index) => right || !key.rights.includes(index));
  return { right, feedback: said.map((index) => key.feedback[index]) };
}

function gradeNumber(key, value) {
  const slack = 1e-9 + key.tolerance;
  const right = Math.abs(value - key.answer) <= slack;
  const known = key.numbers.find(([wrong]) => Math.abs(value - wrong) <= slack);
  return { right, feedback: known && !right ? [known[1]] : [] };
}

let count = 0;

function choices(question) {
  const type = question.kind === "single" ? "radio" : "checkbox";
  const group = `course-quiz-${count++}`;
  return question.options.map((text, index) => {
    const input = element("input", { type, name: group, value: index, ...OWN_KEYS });
    return element("label", { class: "course-quiz-option" }, input, rich("span", {}, text));
  });
}

function numberField(question) {
  const input = element("input", { type: "text", inputmode: "decimal", autocomplete: "off", "aria-label": question.words.answer, ...OWN_KEYS });
  return [element("div", { class: "course-quiz-option" }, input)];
}

function build(root, question) {
  const { words } = question;
  const key = unlock(question.key);
  const numeric = question.kind === "numeric";
  const fields = numeric ? numberField(question) : choices(question);
  const note = question.note ? [element("p", { class: "course-quiz-note" }, question.note)] : [];
  const check = element("button", { type: "submit", ...OWN_KEYS }, words.check);
  const hint = element("details", {}, element("summary", { ...OWN_KEYS }, words.hint), rich("p", {}, question.hint));
  const verdict = element("div", { class: "course-quiz-verdict", role: "status", "aria-live": "polite" });
  const fieldset = element("fieldset", {}, rich("legend", {}, question.prompt), ...note, ...fields, element("div", { class: "course-quiz-line" }, check, hint), verdict);
  const form = element("form", { class: "course-quiz-form", novalidate: "" }, fieldset);

  const say = (className, ...nodes) => {
    verdict.className = `course-quiz-verdict ${className}`;
    verdict.replaceChildren(...nodes);
  };
  const grade = ({ right, feedback }) => {
    const verb = element("strong", {}, right ? words.right : words.wrong);
    const told = feedback.map((html) => rich("p", {}, html));
    const more = right ? [rich("p", {}, key.explain)] : [];
    say(right ? "course-quiz-right" : "course-quiz-wrong", verb, ...told, ...more);
  };
  // A notebook may take Enter before the browser turns it into a submission.
  form.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.target.tagName !== "INPUT") return;
    event.preventDefault();
    event.stopPropagation();
    form.requestSubmit();
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (numeric) {
      const value = readNumber(form.querySelector("input").value);
      if (Number.isNaN(value)) say("", words.number);
      else grade(gradeNumber(key, value));
      return;
    }
    const chosen = [...form.querySelectorAll("input:checked")].map((input) => Number(input.value));
    if (chosen.length === 0) say("", words.choose);
    else grade(gradeChoice(key, chosen));
  });
  root.replaceChildren(form);
}

function render({ model, el }) {
  el.classList.add("course-quiz");
  build(el, model.get("question"));
}

export function mountPage(root) {
  root.querySelectorAll("div.course-quiz:not([data-mounted])").forEach((place) => {
    place.dataset.mounted = "yes";
    build(place, JSON.parse(place.querySelector("script").textContent));
  });
}

export default { render };
