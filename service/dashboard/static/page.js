// What every page does: copy buttons, sortable tables, live states of jobs.

for (const button of document.querySelectorAll("button.copy")) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(button.closest("figure").querySelector("code").textContent);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
}

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
  const rows = [...table.tBodies[0].rows];
  rows.sort((a, b) => {
    const [x, y] = [valueOf(a, column), valueOf(b, column)];
    // Texts come after numbers, so that missing values are last.
    const order = typeof x === typeof y ? (x < y ? -1 : x > y ? 1 : 0) : typeof x === "number" ? -1 : 1;
    return down ? -order : order;
  });
  table.tBodies[0].append(...rows);
}

for (const table of document.querySelectorAll("table.sortable")) {
  [...table.tHead.rows[0].cells].forEach((header, column) => {
    if (header.dataset.fixed !== undefined || !header.textContent.trim()) return;
    const button = document.createElement("button");
    button.type = "button";
    button.append(...header.childNodes);
    header.append(button);
    button.addEventListener("click", () => sortBy(table, header, column));
  });
}

const live = document.querySelector("[data-live]");
if (live && live.dataset.live) {
  const source = new EventSource(`/live?jobs=${live.dataset.live}`);
  const first = new Map();
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
      for (const text of find("eta")) text.textContent = job.eta && !job.ended ? `${job.eta} left` : "";
      for (const text of find("message")) text.textContent = job.message;
      // The results of a job that ends while its page is open are on the page anew.
      if (job.ended && first.get(job.id) === false && live.dataset.reload !== undefined) location.reload();
      if (!first.has(job.id)) first.set(job.id, job.ended);
    }
  };
  source.addEventListener("end", () => source.close());
}
