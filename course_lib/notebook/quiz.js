// Turns each question on the page into a form. In a notebook every quiz brings this module
// along; a form that has been built is left alone. `host.js` comes before it.

// Texts come from the course's own question bank, escaped, with MathML for formulas.
function rich(tag, attributes, html) {
  const node = element(tag, attributes);
  node.innerHTML = html;
  return node;
}

function fill(text, values) {
  return text.replace(/\{(\w+)\}/g, (_, name) => values[name]);
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

// Each kind of question has its fields, and a function that grades what stands in them:
// it returns words where nothing can be graded yet, else { right, feedback }.

function choice(question, key) {
  const type = question.kind === "single" ? "radio" : "checkbox";
  const group = `course-quiz-${question.id}`; // a group ends at its form
  const inputs = question.options.map((_, index) => element("input", { type, name: group, value: index, ...OWN_KEYS }));
  const fields = question.options.map((text, index) => element("label", { class: "course-quiz-option" }, inputs[index], rich("span", {}, text)));
  const grade = () => {
    const chosen = inputs.filter((input) => input.checked).map((input) => Number(input.value));
    if (chosen.length === 0) return question.words.choose;
    const right = chosen.join() === key.rights.join();
    // A right choice of several needs no repeating while another one is wrong or missing.
    const said = chosen.filter((index) => right || !key.rights.includes(index));
    const feedback = said.map((index) => key.feedback[index]);
    return { right, feedback: feedback.length ? feedback : [question.words.incomplete] };
  };
  return { fields, grade };
}

function textField(question, inputmode) {
  const input = element("input", { type: "text", inputmode, autocomplete: "off", "aria-label": question.words.answer, ...OWN_KEYS });
  return [input, element("div", { class: "course-quiz-option" }, input)];
}

function number(question, key) {
  const [input, line] = textField(question, "text");
  const grade = () => {
    const value = readNumber(input.value);
    if (!Number.isFinite(value)) return question.words.number;
    const slack = 1e-9 + key.tolerance;
    const right = Math.abs(value - key.answer) <= slack;
    const known = key.numbers.find(([wrong]) => Math.abs(value - wrong) <= slack);
    if (right) return { right, feedback: [] };
    return { right, feedback: [known ? known[1] : question.words.unknown] };
  };
  return { fields: [line], grade };
}

function prediction(question) {
  const [input, line] = textField(question, "text");
  input.className = "course-quiz-words"; // a guess may have several parts
  const grade = () => {
    const guess = input.value.trim();
    return guess ? { guess } : question.words.guess;
  };
  return { fields: [line], grade };
}

function ordering(question, key) {
  const { words } = question;
  const list = element("ol", { class: "course-quiz-lines" });
  const spoken = element("p", { class: "course-quiz-spoken", "aria-live": "polite" });
  const move = (row, step, button) => {
    const other = step < 0 ? row.previousElementSibling : row.nextElementSibling;
    if (!other) return;
    if (step < 0) other.before(row);
    else other.after(row);
    const place = [...list.children].indexOf(row) + 1;
    spoken.textContent = fill(words.moved, { place, count: list.children.length, line: row.dataset.plain });
    button.focus(); // moving a node takes the focus away
  };
  for (const [index, html] of question.lines) {
    const text = rich("span", { class: "course-quiz-text" }, html);
    const row = element("li", { "data-index": index, "data-plain": text.textContent });
    const button = (step, sign, label) => {
      const node = element("button", { type: "button", "aria-label": fill(label, { line: text.textContent }), ...OWN_KEYS }, sign);
      node.addEventListener("click", () => move(row, step, node));
      return node;
    };
    row.append(button(-1, "↑", words.up), button(1, "↓", words.down), text);
    list.append(row);
  }
  const grade = () => {
    const order = [...list.children].map((row) => Number(row.dataset.index));
    const ranks = order.map((index) => key.ranks[index]);
    const expected = [...key.ranks].sort((a, b) => a - b);
    const good = ranks.findIndex((rank, place) => rank !== expected[place]);
    if (good < 0) return { right: true, feedback: [] };
    const told = key.pairs.find(([earlier, later]) => order.indexOf(earlier) > order.indexOf(later));
    return { right: false, feedback: [told ? told[2] : fill(words.misplaced, { count: good })] };
  };
  return { fields: [list, spoken], grade };
}

const KINDS = { single: choice, multiple: choice, numeric: number, ordering, predict: prediction };

function build(root, question) {
  const { words } = question;
  const key = unlock(question.key);
  const { fields, grade } = KINDS[question.kind](question, key);
  const note = question.note ? [element("p", { class: "course-quiz-note" }, question.note)] : [];
  const submit = element("button", { type: "submit", ...OWN_KEYS }, question.kind === "predict" ? words.write : words.check);
  const hint = element("details", {}, element("summary", { ...OWN_KEYS }, words.hint), rich("p", {}, question.hint));
  const verdict = element("div", { class: "course-quiz-verdict", role: "status", "aria-live": "polite" });
  const fieldset = element("fieldset", {}, rich("legend", {}, question.prompt), ...note, ...fields, element("div", { class: "course-quiz-line" }, submit, hint), verdict);
  const form = element("form", { class: "course-quiz-form", novalidate: "" }, fieldset);

  const say = (className, ...nodes) => {
    verdict.className = `course-quiz-verdict ${className}`;
    verdict.replaceChildren(...nodes);
  };
  const tell = (graded) => {
    if (typeof graded === "string") {
      say("", graded);
    } else if ("guess" in graded) {
      const after = element("details", {}, element("summary", { ...OWN_KEYS }, words.after), rich("p", {}, key.explain));
      say("", element("p", {}, fill(words.written, graded)), after);
    } else {
      const verb = element("strong", {}, graded.right ? words.right : words.wrong);
      const told = graded.feedback.map((html) => rich("p", {}, html));
      const more = graded.right ? [rich("p", {}, key.explain)] : [];
      say(graded.right ? "course-quiz-right" : "course-quiz-wrong", verb, ...told, ...more);
    }
  };
  // A notebook may take Enter before the browser turns it into a submission.
  form.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || withModifier(event) || event.target.tagName !== "INPUT") return;
    event.preventDefault();
    event.stopPropagation();
    form.requestSubmit();
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    tell(grade());
  });
  giveNotebookItsKeys(form);
  root.replaceChildren(form);
}

export function mountPage(root) {
  root.querySelectorAll("div.course-quiz:not([data-mounted])").forEach((place) => {
    place.dataset.mounted = "yes";
    build(place, JSON.parse(place.querySelector("script").textContent));
  });
}
