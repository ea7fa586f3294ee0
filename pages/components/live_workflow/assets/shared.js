// Entry of a file that shows one run without a server: the same view over the same messages, which the file brings
// along. Nothing is fetched, and the file's own policy forbids it.

import { PACKED } from "./base.js"
import { copyAsWritten } from "./copying.js"
import { el } from "./dom.js"
import { enter } from "./draw_formulas.js"
import { plural } from "./format.js"
import { visible } from "./text.js"
import { LiveWorkflow } from "./view.js"

const MOMENT = /^#at=([0-9.]+)$/

const place = {
  read: () => MOMENT.exec(location.hash)?.[1] ?? null,
  write: (at) => history.replaceState(history.state, "", at === null ? "#" : `#at=${at}`),
}

async function show() {
  const shared = JSON.parse(document.getElementById("shared-run").textContent)
  document.querySelector("main").before(head(shared))
  const { finished, recording } = await unpacked(shared.view)
  const parent = document.getElementById("live").attachShadow({ mode: "open" })
  parent.adoptedStyleSheets = [await new CSSStyleSheet().replace(PACKED.style)]
  enter(parent)
  copyAsWritten(parent)
  const connect = (_, { onMessage, onState }) => {
    queueMicrotask(() => {
      onState("over")
      onMessage(finished)
    })
    return { close() {} }
  }
  const view = new LiveWorkflow(parent, { connect, record: async () => recording, place })
  const data = { run_id: finished.run.run_id, editable: false, go_on: null, open: null, edited: null, ended: true }
  view.update({ data, setStateValue() {}, setTriggerValue() {} })
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => view.restyle())
  addEventListener("hashchange", () => {
    view.replay.leave()
    view.replay.linked = false
    view.replay.begin()
  })
}

// Says what this file is, and what it does not prove.
function head({ task, written_by: program, written_at_utc: at, redactions, simulated, imported }) {
  const facts = [
    `Written by ${program} on ${at.slice(0, 10)}.`,
    simulated && "Its workers are simulated.",
    imported && "It was imported before.",
    redactions > 0 && `${plural(redactions, "passage")} hidden.`,
    "An unsigned copy: nothing proves that it is unchanged.",
  ]
  const title = el("h1", { dir: "auto" }, visible(task))
  title.title = visible(task)
  return el("header", {}, title, el("p", {}, facts.filter(Boolean).join(" ")))
}

// Returns what stands in the file as JSON, compressed, in base64.
async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0))
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))
  return JSON.parse(await new Response(stream).text())
}

show().catch((error) => {
  const fault = el("p", { class: "fault", role: "alert" }, `This run cannot be shown: ${error.message}`)
  document.querySelector("main").prepend(fault)
})
