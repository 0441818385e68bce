// What every page does: copy buttons, sortable tables, live states of jobs.

function valueOf(row, column) {
  const cell = row.cells[column];
  const text = cell.dataset.sort ?? cell.textContent.trim();
  const number = Number(text);
  return text !== "" && !Number.isNaN(number) ? number : text.toLowerCase();
}

function sortBy(table, header, column) {
  const down = header.getAttribute("aria-sort") === "ascending";
  for (const other of header.parentElement.cells) other.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", down ? "descending" : "ascending");
  // Lines below a row stay below it.
  const rows = [];
  for (const row of table.tBodies[0].rows) {
    if (row.classList.contains("line") && rows.length) rows[rows.length - 1].push(row);
    else rows.push([row]);
  }
  rows.sort(([a], [b]) => {
    const [x, y] = [valueOf(a, column), valueOf(b, column)];
    // Texts come after numbers, so that missing values are last.
    const order = typeof x === typeof y ? (x < y ? -1 : x > y ? 1 : 0) : typeof x === "number" ? -1 : 1;
    return down ? -order : order;
  });
  table.tBodies[0].append(...rows.flat());
}

// On a phone secondary parts are folded; a link to a part unfolds it.
const phone = matchMedia("(max-width: 40rem)");
document.addEventListener("click", (event) => {
  const link = event.target.closest("a[href^='#']");
  const fold = link && document.getElementById(link.hash.slice(1))?.closest("details");
  if (fold) fold.open = true;
});

// Paper has what a wide window shows.
addEventListener("beforeprint", () => {
  for (const one of document.querySelectorAll("details[data-printed]")) one.open = true;
});

function enhance(part) {
  for (const one of part.querySelectorAll("details.fold")) {
    one.classList.add("ready");
    if (phone.matches) {
      one.toggleAttribute("data-printed", one.open);
      one.open = one.contains(document.querySelector(":target"));
    }
  }
  for (const button of part.querySelectorAll("button.copy")) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(button.closest("figure").querySelector("code").textContent);
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
  }
  for (const button of part.querySelectorAll("button.print")) {
    button.hidden = false;
    button.addEventListener("click", () => { print(); });
  }
  for (const table of part.querySelectorAll("table.sortable")) {
    [...table.tHead.rows[0].cells].forEach((header, column) => {
      if (header.dataset.fixed !== undefined || !header.textContent.trim()) return;
      const button = document.createElement("button");
      button.type = "button";
      button.append(...header.childNodes);
      header.append(button);
      button.addEventListener("click", () => sortBy(table, header, column));
    });
  }
}

enhance(document);
document.querySelector("#problems.panel")?.focus();

// Chosen jobs are sent in the order in which they were ticked: the first is the baseline of a comparison.
const ticked = new Set([...document.querySelectorAll("input[name=job]:checked")].map((box) => box.value));
document.addEventListener("change", ({target}) => {
  if (target.name === "job" && target.type === "checkbox") ticked[target.checked ? "add" : "delete"](target.value);
});
document.addEventListener("formdata", ({formData}) => {
  const chosen = formData.getAll("job");
  formData.delete("job");
  const known = [...ticked].filter((one) => chosen.includes(one));
  for (const job of new Set([...known, ...chosen])) formData.append("job", job);
});
// Filters that a browser kept from before say what is shown.
addEventListener("pageshow", ({persisted}) => {
  if (persisted) for (const form of document.querySelectorAll("form[autocomplete=off]")) form.reset();
});

// Enter in a panel's field presses the panel's first button: the browser would press the form's.
document.addEventListener("keydown", (event) => {
  const panel = event.key === "Enter" && !event.isComposing && event.target.matches("input") && event.target.closest(".confirm .panel");
  if (!panel) return;
  event.preventDefault();
  panel.querySelector("button").click();
});

// Keys of links: the previous and the next example.
const keyed = new Map();
for (const link of document.querySelectorAll("a[data-keys]")) {
  for (const key of link.dataset.keys.split(" ")) keyed.set(key, link);
}
document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, select, textarea, [tabindex='0']");
  if (typing || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
  keyed.get(event.key)?.click();
});

// A part of the page is loaded anew: the results that were measured meanwhile, or all where a job has ended.
const REFRESH_MILLISECONDS = 3000;
let newest = 0;
let ended = false;
let refreshing = false;
let source = null;

// What a reader has unfolded, folded or sorted, holds the focus or is filled in, by its id, address, text or name.
const nameOf = (one) => `${one.tagName} ${one.id || one.getAttribute("href") || one.textContent.trim() || one.name}`;
const foldOf = (one) => nameOf(one.id ? one : one.querySelector("summary"));

function replacePart(old, fresh) {
  enhance(fresh);
  const folds = new Map([...old.querySelectorAll("details")].map((one) => [foldOf(one), one.open]));
  for (const one of fresh.querySelectorAll("details")) one.open = folds.get(foldOf(one)) ?? one.open;
  const focused = old.contains(document.activeElement) ? document.activeElement : null;
  for (const field of old.querySelectorAll("input:not([type=hidden])")) {
    const same = [...fresh.querySelectorAll("input")].find((one) => nameOf(one) === nameOf(field));
    if (field === focused || field.value !== field.defaultValue) same?.replaceWith(field);
  }
  for (const header of old.querySelectorAll("table.sortable th[aria-sort]")) {
    const text = header.closest("thead").textContent;
    const table = [...fresh.querySelectorAll("table.sortable")].find((one) => one.tHead.textContent === text);
    const same = table?.tHead.rows[0].cells[header.cellIndex];
    if (!same) continue;
    if (header.getAttribute("aria-sort") === "descending") same.setAttribute("aria-sort", "ascending");
    sortBy(table, same, header.cellIndex);
  }
  old.replaceWith(fresh);
  if (focused === null) return;
  const able = [fresh, ...fresh.querySelectorAll("a[href], button, input, summary, [tabindex]")];
  (able.find((one) => nameOf(one) === nameOf(focused)) ?? fresh).focus({preventScroll: true});
}

function stalePart() {
  const results = document.querySelector("[data-results]");
  return ended ? document.getElementById("content") : Number(results?.dataset.results) < newest ? results : null;
}

async function refresh() {
  if (refreshing) return;
  refreshing = true;
  for (let old; (old = stalePart()) !== null;) {
    const whole = ended;
    try {
      const answer = await fetch(location.href);
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const fresh = page.querySelector(whole ? "#content" : "[data-results]");
      if (answer.status < 500 && !fresh) { location.reload(); break; }
      if (answer.status < 500) {
        replacePart(old, document.adoptNode(fresh));
        if (whole) follow();
      }
    } catch { /* the service is away: again below */ }
    await new Promise((done) => { setTimeout(done, REFRESH_MILLISECONDS); });
  }
  refreshing = false;
}

function follow() {
  ended = false;
  source?.close();
  const live = document.querySelector("[data-live]");
  if (!live?.dataset.live) return;
  source = new EventSource(`/live?jobs=${live.dataset.live}`);
  source.onmessage = (event) => {
    for (const job of JSON.parse(event.data)) {
      const find = (name) => document.querySelectorAll(`[data-${name}="${CSS.escape(job.id)}"]`);
      for (const badge of find("state")) {
        badge.className = `state ${job.state}`;
        badge.textContent = job.state.replace("_", " ");
      }
      for (const bar of find("progress")) {
        if (job.share === null) bar.removeAttribute("value"); else bar.value = job.share;
      }
      for (const text of find("done")) text.textContent = job.total ? `${job.done}/${job.total}` : `${job.done}`;
      for (const text of find("left")) text.textContent = job.left;
      for (const text of find("speed")) text.textContent = job.speed;
      for (const text of find("message")) text.textContent = job.message;
      newest = Math.max(newest, job.results);
      // Only jobs that had not ended are followed: one that ends is on the page anew.
      if (job.ended && live.dataset.reload !== undefined) ended = true;
    }
    refresh();
  };
  source.addEventListener("end", () => source.close());
}

follow();
