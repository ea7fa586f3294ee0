// Entry of a file that shows one run without a server: the same view over the same messages, which the file brings
// along. Nothing is fetched, and the file's own policy forbids it.

import { PACKED } from "./base.js"
import { copyAsWritten } from "./copying.js"
import { enter } from "./draw_formulas.js"
import { fileHead, showFault, unpacked } from "./shared_file.js"
import { LiveWorkflow } from "./view.js"

const MOMENT = /^#at=([0-9.]+)$/

const place = {
  read: () => MOMENT.exec(location.hash)?.[1] ?? null,
  write: (at) => history.replaceState(history.state, "", at === null ? "#" : `#at=${at}`),
}

async function show() {
  const shared = JSON.parse(document.getElementById("shared-run").textContent)
  document.querySelector("main").before(fileHead(shared.task, facts(shared), shared))
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
  const data = { run_id: finished.run.run_id, editable: false, go_on: null, editor: null, edited: null, ended: true }
  view.update({ data, setStateValue() {}, setTriggerValue() {} })
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => view.restyle())
  addEventListener("hashchange", () => {
    const { hash } = location
    view.replay.leave() // which takes the moment out of the address
    history.replaceState(history.state, "", hash)
    view.replay.linked = false
    view.replay.begin()
  })
}

const facts = ({ simulated, imported }) => [
  simulated && "Its workers are simulated.",
  imported && "It was imported before.",
]

show().catch(showFault("This run"))
