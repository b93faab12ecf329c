const WIDTH = 1280;
const HEIGHT = 720;
const SMALLEST = 0.6; // below that the last row cannot read it

const CONTROLS = "input, select, textarea, button, summary, form";

const inControl = (event) => Boolean(event.target.closest && event.target.closest(CONTROLS));

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
  keyboardCondition: (event) => !inControl(event),
  plugins: [RevealNotes],
});
// Arrows belong to a control while it has the focus; Escape gives them back.
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && inControl(event)) document.activeElement.blur();
});

const slides = document.querySelector(".slides");
slides.classList.add("measuring");
slides.querySelectorAll("section:not(:has(section))").forEach(fit);
slides.classList.remove("measuring");
document.documentElement.dataset.ready = "yes";
