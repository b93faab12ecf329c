const WIDTH = 1280;
const HEIGHT = 720;
const SMALLEST = 0.6; // below that the last row cannot read it

const FIELDS = "input, select, textarea";
const BUTTONS = "button, summary";

const within = (event, selector) => Boolean(event.target.closest && event.target.closest(selector));

// Arrows belong to a field while it has the focus; a button needs only Space and Enter.
const forTheDeck = (event) => {
  if (within(event, BUTTONS)) return ![" ", "Enter"].includes(event.key);
  return !within(event, FIELDS);
};

// A slide that is too full is drawn smaller; one that would be illegible says so.
function fit(section) {
  const box = section.querySelector(".fit");
  const scale = Reveal.getScale();
  const fits = () =>
    box.getBoundingClientRect().height <= HEIGHT * scale && section.scrollWidth <= section.clientWidth + 1;
  let zoom = 1;
  while (!fits() && zoom > SMALLEST) {
    zoom = Math.max(SMALLEST, zoom - 0.05);
    box.style.zoom = zoom;
  }
  if (!fits()) {
    section.classList.add("too-tall");
    console.error(`slide ${section.id}: too full, even at ${SMALLEST} of its size; split it`);
  }
}

await MathJax.startup.promise;
await MathJax.typesetPromise();
// The notes window lacks the style that hides the copy for screen readers.
document.querySelectorAll("aside.notes mjx-assistive-mml").forEach((copy) => copy.remove());

await Reveal.initialize({
  width: WIDTH,
  height: HEIGHT,
  margin: 0.04,
  center: false,
  hash: true,
  slideNumber: "c/t",
  transition: "none",
  pdfSeparateFragments: false,
  keyboardCondition: forTheDeck,
  plugins: [RevealNotes],
});
// From inside a field, Escape gives the arrows back to the deck; PageDown and PageUp,
// which a lecturer's remote control sends, turn the slide at once.
document.addEventListener("keydown", (event) => {
  if (!within(event, FIELDS)) return;
  if (["Escape", "PageDown", "PageUp"].includes(event.key)) document.activeElement.blur();
  if (event.key === "PageDown" || event.key === "PageUp") {
    event.preventDefault(); // of the slider's own large step
    if (event.key === "PageDown") Reveal.next();
    else Reveal.prev();
  }
});

const slides = document.querySelector(".slides");
slides.classList.add("measuring");
slides.querySelectorAll("section:not(:has(section))").forEach(fit);
slides.classList.remove("measuring");
document.documentElement.dataset.ready = "yes";
