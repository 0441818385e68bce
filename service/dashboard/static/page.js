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

function enhance(part) {
  for (const one of part.querySelectorAll("details.fold")) {
    one.classList.add("ready");
    if (phone.matches) one.open = one.contains(document.querySelector(":target"));
  }
  for (const button of part.querySelectorAll("button.copy")) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(button.closest("figure").querySelector("code").textContent);
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
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
for (const button of document.querySelectorAll("button.print")) {
  button.hidden = false;
  button.addEventListener("click", () => { print(); });
}

// Enter in a panel's field presses the panel's first button: the browser would press the form's.
document.addEventListener("keydown", (event) => {
  const panel = event.key === "Enter" && event.target.matches("input") && event.target.closest(".confirm .panel");
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

// Results that were measured while the page is open: the part of the page that has them is loaded anew.
const REFRESH_MILLISECONDS = 3000;
let newest = 0;
let refreshing = false;

// What a reader has unfolded, or holds the focus, by its text.
const nameOf = (one) => `${one.tagName} ${one.textContent.trim()}`;

function replaceResults(old, fresh) {
  enhance(fresh);
  const open = new Set([...old.querySelectorAll("details[open] > summary")].map(nameOf));
  for (const summary of fresh.querySelectorAll("details > summary")) {
    if (open.has(nameOf(summary))) summary.parentElement.open = true;
  }
  const focused = old.contains(document.activeElement) ? nameOf(document.activeElement) : null;
  old.replaceWith(fresh);
  if (focused === null) return;
  for (const one of fresh.querySelectorAll("a[href], button, summary, [tabindex]")) {
    if (nameOf(one) === focused) { one.focus({preventScroll: true}); break; }
  }
}

async function refreshResults() {
  if (refreshing) return;
  refreshing = true;
  for (let old; (old = document.querySelector("[data-results]")) && Number(old.dataset.results) < newest;) {
    try {
      const answer = await fetch(location.href);
      const text = await answer.text();
      const fresh = new DOMParser().parseFromString(text, "text/html").querySelector("[data-results]");
      if (!fresh && answer.status < 500) break;
      if (fresh) replaceResults(old, document.adoptNode(fresh));
    } catch { /* the service is away: again below */ }
    await new Promise((done) => { setTimeout(done, REFRESH_MILLISECONDS); });
  }
  refreshing = false;
}

const live = document.querySelector("[data-live]");
if (live && live.dataset.live) {
  const source = new EventSource(`/live?jobs=${live.dataset.live}`);
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
      if (job.ended && live.dataset.reload !== undefined) location.reload();
    }
    refreshResults();
  };
  source.addEventListener("end", () => source.close());
}
