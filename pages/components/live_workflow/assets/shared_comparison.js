// Entry of a file that compares runs without a server: the same picture and table that the Compare page draws. Nothing
// is fetched, and the file's own policy forbids it.

import { PACKED } from "./base.js"
import { ComparedRuns } from "./compared_runs.js"
import { el, setText } from "./dom.js"
import { fileHead, showFault, unpacked } from "./shared_file.js"
import { visible } from "./text.js"

async function show() {
  const shared = JSON.parse(document.getElementById("shared-comparison").textContent)
  document.querySelector("main").before(fileHead(shared.title, shared.facts, shared))
  const { heads, rows, pairs } = await unpacked(shared.view)
  const parent = document.getElementById("live").attachShadow({ mode: "open" })
  parent.adoptedStyleSheets = [await new CSSStyleSheet().replace(PACKED.style)]
  const view = new ComparedRuns(parent)
  let shown = pairs[0]
  const draw = () => view.update({ data: shown })
  draw()
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw)
  if (pairs.length === 1) return
  const names = rows.slice(1).map(({ name }) => name)
  const choices = names.map((name, place) =>
    el("button", { type: "button", onclick: () => choose(place) }, `A with ${name}`),
  )
  const below = el("p", { class: "muted small compared-below", role: "status" })
  function choose(place) {
    choices.forEach((each, at) => each.setAttribute("aria-pressed", String(at === place)))
    setText(below, `Below: run A, and run ${names[place]} as B.`)
    shown = pairs[place]
    draw()
  }
  choose(0)
  view.root.prepend(table(heads, rows, choices), below)
}

// Returns the runs as a table; beside each after the first what shows it in detail.
function table(heads, rows, choices) {
  const head = el(
    "tr",
    {},
    ["Run and answer", ...heads, ""].map((name) => el("th", { scope: "col" }, name)),
  )
  const lines = rows.map((row, place) =>
    el(
      "tr",
      {},
      el(
        "th",
        { scope: "row", title: `Run ${row.run_id}` },
        el("p", { dir: "auto" }, `${row.name} · ${visible(row.said)}`),
        el("p", { class: "muted small", dir: "auto" }, [row.mark, visible(row.task)].filter(Boolean).join(" · ")),
      ),
      el("td", {}, el("span", { class: `pill ${row.status}` }, row.status_words)),
      [row.steps, row.plan, row.parts, row.tokens].map((text) => el("td", { class: "number" }, text)),
      el("td", {}, row.simulated ? el("span", { class: "pill simulated" }, "simulated") : row.cost),
      el("td", { class: "number" }, row.time),
      el("td", {}, place === 0 ? null : choices[place - 1]),
    ),
  )
  return el(
    "section",
    { class: "card compared-runs", "aria-label": "Runs" },
    el("table", {}, el("thead", {}, head), el("tbody", {}, lines)),
  )
}

show().catch(showFault("This comparison"))
