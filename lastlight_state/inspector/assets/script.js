// Local times, ids to copy, keys, and pages that are live. Without it every page is whole, with times in UTC.
"use strict";

const two = (number) => String(number).padStart(2, "0");

function local(moment) {
  const day = `${moment.getFullYear()}-${two(moment.getMonth() + 1)}-${two(moment.getDate())}`;
  return `${day} ${two(moment.getHours())}:${two(moment.getMinutes())}:${two(moment.getSeconds())}`;
}

function localise(part) {
  for (const element of part.querySelectorAll("time[datetime]")) {
    const moment = new Date(element.dateTime);
    if (Number.isNaN(moment.getTime())) continue;
    if ("age" in element.dataset) element.title = `${local(moment)}, ${element.dateTime} UTC`;
    else element.textContent = local(moment);
  }
  for (const element of part.querySelectorAll("svg [data-time]")) {
    const moment = new Date(element.dataset.time);
    if (!Number.isNaN(moment.getTime())) element.textContent = local(moment).slice(5);
  }
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  try {
    await navigator.clipboard.writeText(button.dataset.copy);
    button.textContent = "copied";
  } catch {
    button.textContent = "not copied";
  }
  setTimeout(() => { button.textContent = "copy"; }, 1500);
});

let going = false;
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea")) return;
  if (event.key === "/") {
    const field = document.querySelector(".filters input, .filters select");
    if (field) { event.preventDefault(); field.focus(); }
  } else if (going) {
    for (const link of document.querySelectorAll("nav a[data-key]")) {
      if (link.dataset.key === event.key) link.click();
    }
  }
  going = event.key === "g";
});

// What a person had opened, and where the focus was, stays as it was when the content is replaced.
const keyOf = (one) => one.dataset.key || one.querySelector("summary").firstChild.textContent;

function replace(main, html) {
  const opened = new Map([...main.querySelectorAll("details")].map((one) => [keyOf(one), one.open]));
  const active = main.contains(document.activeElement) ? document.activeElement : null;
  const wanted = active && (active.getAttribute("href") || active.dataset.copy);
  main.innerHTML = html;
  for (const one of main.querySelectorAll("details")) {
    const before = opened.get(keyOf(one));
    if (before !== undefined) one.open = before;
  }
  localise(main);
  if (wanted) {
    for (const one of main.querySelectorAll("a[href], [data-copy]")) {
      if (one.getAttribute("href") === wanted || one.dataset.copy === wanted) { one.focus(); break; }
    }
  }
}

const main = document.querySelector("main[data-live]");
if (main) {
  const state = document.querySelector("[data-live-state]");
  const source = new EventSource(location.pathname + location.search);
  source.addEventListener("open", () => { state.textContent = "live"; state.dataset.on = "1"; });
  source.addEventListener("error", () => { state.textContent = "not live"; delete state.dataset.on; });
  source.addEventListener("message", (event) => replace(main, event.data));
  addEventListener("pagehide", () => source.close());
}

localise(document);
