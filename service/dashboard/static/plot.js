// Draws the plot of the page with Vega in place of its picture; expressions are interpreted, never compiled.

const place = document.getElementById("plot");
const tip = document.getElementById("tip");

function show(handler, event, item, value) {
  const parts = value && typeof value === "object" ? Object.entries(value) : [];
  tip.hidden = parts.length === 0;
  tip.textContent = parts.map(([name, part]) => `${name}: ${part}`).join("   ");
}

async function draw() {
  const scheme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  const narrow = matchMedia("(max-width: 40rem)").matches;
  const answer = await fetch(`${place.dataset.spec}&scheme=${scheme}&narrow=${narrow}`);
  if (!answer.ok || !window.vegaEmbed) return;
  const spec = await answer.json();
  // A single view is drawn as wide as the page; several side by side keep their size.
  if (spec.layer || spec.mark) {
    const room = place.closest("main").clientWidth;
    Object.assign(spec, { width: narrow ? room - 130 : Math.min(820, room - 260), height: narrow ? 280 : 420 });
  }
  const drawn = document.createElement("div");
  await window.vegaEmbed(drawn, spec, {
    actions: false, ast: true, defaultStyle: false, mode: "vega-lite", renderer: "canvas", tooltip: show,
  });
  const picture = place.querySelector("img");
  drawn.setAttribute("role", "img");
  drawn.setAttribute("aria-label", picture.alt);
  place.replaceChildren(drawn);
}

// Vega is larger than the page: it is loaded once somebody points at the plot, or presses the button.
const button = document.getElementById("draw");
button.hidden = false;

function begin() {
  if (button.hidden) return;
  button.hidden = true;
  const script = document.createElement("script");
  script.src = place.dataset.vega;
  script.addEventListener("load", draw);
  document.head.append(script);
}

button.addEventListener("click", begin);
place.addEventListener("pointerenter", begin);
