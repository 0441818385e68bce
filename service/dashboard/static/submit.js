// The submit page: sends the form while a person types, and puts checks, cost and commands in place.

const PAUSE_MILLISECONDS = 500;
const form = document.querySelector("form[data-check]");
let timer = 0;
let running = null;

async function send(action) {
  running?.abort();
  running = new AbortController();
  const body = new URLSearchParams(new FormData(form));
  body.set("action", action);
  if (action === "check") body.delete("add");
  const answer = await fetch("/submit", { method: "POST", body, signal: running.signal, redirect: "error" });
  return new DOMParser().parseFromString(await answer.text(), "text/html");
}

// Of an element and its counterpart in the new page: what a check may change.
function replace(fresh, selector) {
  for (const old of document.querySelectorAll(selector)) {
    const one = fresh.getElementById(old.id);
    if (!one) continue;
    const opened = [...old.querySelectorAll("details[id]")].filter((part) => part.open).map((part) => part.id);
    old.className = one.className;
    old.replaceChildren(...one.childNodes);
    for (const part of old.querySelectorAll("details[id]")) part.open = opened.includes(part.id);
  }
}

async function check() {
  try {
    const fresh = await send("check");
    replace(fresh, "#cost, #snippets, .field-error, #problems.panel");
    for (const control of form.querySelectorAll("[aria-describedby]")) {
      const one = fresh.getElementById(control.id);
      if (one?.hasAttribute("aria-invalid")) control.setAttribute("aria-invalid", "true");
      else control.removeAttribute("aria-invalid");
    }
    showCopyButtons();
  } catch (error) {
    if (error.name !== "AbortError") throw error;
  }
}

// The fields of another component: the whole form is new, and the focus stays.
async function update() {
  clearTimeout(timer);
  const focused = document.activeElement?.id;
  try {
    const fresh = await send("update");
    form.replaceChildren(...fresh.querySelector("form[data-check]").childNodes);
    document.getElementById(focused)?.focus();
    showCopyButtons();
    later(check);
  } catch (error) {
    if (error.name !== "AbortError") throw error;
  }
}

function showCopyButtons() {
  for (const button of form.querySelectorAll("button.copy")) button.hidden = false;
}

function later(what) {
  clearTimeout(timer);
  timer = setTimeout(what, PAUSE_MILLISECONDS);
}

if (form) {
  form.addEventListener("input", (event) => {
    if (event.target.id !== "f-add") later(event.target.dataset.update === undefined ? check : update);
  });
  form.addEventListener("click", async (event) => {
    const button = event.target.closest("button.copy");
    if (!button) return;
    await navigator.clipboard.writeText(button.closest("figure").querySelector("code").textContent);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
  // Enter in a field checks; only the button submits.
  form.addEventListener("submit", (event) => {
    const button = event.submitter;
    if (!button || button.classList.contains("default")) {
      event.preventDefault();
      check();
    }
  });
  // A link to a field opens what hides it.
  form.addEventListener("click", (event) => {
    const link = event.target.closest("#problems a[href^='#']");
    const target = link && document.getElementById(link.hash.slice(1));
    if (!target) return;
    for (let part = target.closest("details"); part; part = part.parentElement.closest("details")) part.open = true;
    target.focus();
  });
}
