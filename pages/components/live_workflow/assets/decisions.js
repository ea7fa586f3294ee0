// Who decided what about a run's approvals, and when: the record, while the run waits and after it.

import { el } from "./dom.js"
import { caller, pathKey } from "./format.js"
import { isolated, visible } from "./text.js"

const DECIDED = {
  open: { glyph: "‖", word: "waits" },
  granted: { glyph: "✓", word: "approved" },
  denied: { glyph: "⊖", word: "denied" },
  replaced: { glyph: "✎", word: "replaced by an edit" },
}

// Returns one line, as in the terminal.
export function decisionLine(approval, ofFile = false) {
  const { glyph, word } = DECIDED[approval.status]
  const to = approval.agent && approval.of !== "tool" ? ` → ${isolated(approval.agent)}` : ""
  const rest = approval.rest ? ", and all that follows," : ""
  const by = approval.decided_by ? ` by ${visible(caller(approval.decided_by))}${saidBy(ofFile)}` : ""
  const at = approval.decided_at_utc ? `, ${moment(approval.decided_at_utc)}` : ""
  const where = approval.carried_from ? `, in run ${visible(approval.carried_from)}` : ""
  const note = approval.note ? `: ${visible(approval.note)}` : ""
  return `${glyph} ${visible(approval.what)}${to} ${word}${rest}${by}${at}${where}${note}`
}

const moment = (utc) => new Date(utc).toLocaleString([], { dateStyle: "medium", timeStyle: "short" })

// `run`: the one that the approvals are of.
export const decisionLines = (approvals, run) =>
  approvals.map((each) => el("p", { class: `decision ${each.status}`, dir: "auto" }, decisionLine(each, isOfFile(run))))

// Whether the run came from a file of somebody. A recorded run came with the program.
export const isOfFile = (run) => Boolean(run?.imported) && !run.imported.recorded

// Who did something in an imported run is its file's word.
export const saidBy = (ofFile) => (ofFile ? " (says the file)" : "")

// The requests about one step.
export const aboutStep = (model, step) =>
  (model.run?.approvals ?? []).filter((each) => each.of !== "plan" && pathKey(each.path) === pathKey(step.path))

// What changes when one of these is decided.
export const decisionState = (approvals) => approvals.map((each) => `${each.number}${each.status}`).join()
