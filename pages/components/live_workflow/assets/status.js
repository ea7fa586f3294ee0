// The word and the glyph of each status, and whether a real model answered.

import { parametersOf } from "./format.js"
import { isolated, visible } from "./text.js"

export const STEP_STATUS = {
  draft: { glyph: "…", word: "being written" },
  unfinished: { glyph: "…", word: "plan not finished" },
  waiting: { glyph: "○", word: "waiting" },
  slot: { glyph: "◌", word: "waiting for a slot" },
  asked: { glyph: "‖", word: "waits for approval" },
  running: { glyph: "◔", word: "running" },
  retrying: { glyph: "↻", word: "retrying" },
  loading: { glyph: "◷", word: "loading its model" },
  tool_results: { glyph: "⚒", word: "waits for tools" },
  calls_tools: { glyph: "⚒", word: "calls tools" },
  completed: { glyph: "✓", word: "done" },
  declined: { glyph: "◌", word: "simulated, no answer" },
  incomplete: { glyph: "◐", word: "cut off" },
  refused: { glyph: "⊗", word: "refused" },
  filtered: { glyph: "▽", word: "filtered" },
  cut: { glyph: "◐", word: "cut off" },
  empty: { glyph: "∅", word: "empty" },
  reused: { glyph: "↺", word: "reused" },
  written: { glyph: "✎", word: "by a person" },
  failed: { glyph: "✕", word: "failed" },
  denied: { glyph: "⊖", word: "denied" },
  skipped: { glyph: "⊘", word: "skipped" },
  cancelled: { glyph: "■", word: "cancelled" },
  unread: { glyph: "⚠", word: "record ends here" },
}

// Incomplete answers. Each word is the status of a step, and of a run whose answer ended in this way.
const NOT_WHOLE = new Set(["refused", "filtered", "cut", "empty"])
export const notWhole = (status) => NOT_WHOLE.has(status)

// Says whether a step has ended with an output that other steps may read.
export const ended = (status) => ["completed", "reused", "written"].includes(status) || notWhole(status)

// How a simulated worker begins where it does not know the task (`rehearsal/worker.py`).
export const CANNOT_ANSWER = "I am simulated and know the example tasks only"

// What became of a call of a tool server, as `formats.TOOL_OUTCOMES` has it.
export const TOOL_OUTCOME = {
  returned: { glyph: "✓", word: "returned" },
  error: { glyph: "✕", word: "failed" },
  unreachable: { glyph: "⊘", word: "not reached, nothing was sent" },
  timed_out: { glyph: "◷", word: "timed out" },
  broke_off: { glyph: "⚡", word: "broke off" },
  changed: { glyph: "⇄", word: "tool changed, nothing was sent" },
  unoffered: { glyph: "∄", word: "no such tool, nothing was sent" },
  denied: { glyph: "⊖", word: "denied, nothing was sent" },
  unknown: { glyph: "⚠", word: "outcome unknown, not repeated" },
}

export const EFFECTS = {
  true: { glyph: "◆", word: "has effects" },
  false: { glyph: "◇", word: "no effects" },
}

// Returns the turn of which results are missing, of the client or of tool servers; null: none.
export const openTurn = ({ status, turns }) =>
  status === "running" && turns?.length && turns.at(-1).results === null ? turns.at(-1) : null

const missing = (turn) => {
  const there = new Set(turn.partial.map(({ call_id }) => call_id))
  return turn.calls.filter(({ call_id }) => !there.has(call_id))
}

// Whether a tool server of the pool carries a call out; else the client does.
export const isOurs = (turn, { call_id: id }) => turn.ours.includes(id)

// Returns the calls of tools whose results a step waits for: of its client, and of tool servers of the pool.
export function openCalls(step) {
  const turn = openTurn(step)
  return turn ? missing(turn).filter((call) => !isOurs(turn, call)) : []
}

export function callsNow(step) {
  const turn = openTurn(step)
  return turn ? missing(turn).filter((call) => isOurs(turn, call)) : []
}

// How people read the name by which workers call a tool of a server: `files.write` for `files__write`.
const dotted = (name) => name.replace("__", ".")

// Names the tools of calls, each once. `ours`: tool servers of the pool carry them out.
export const calledTools = (calls, ours = false) =>
  [...new Set(calls.map(({ name }) => isolated(ours ? dotted(name) : name)))].join(", ")

// Names the tools of a step's turns, each once.
export const toolsOf = (turns) => [
  ...new Set(turns.flatMap((turn) => turn.calls.map((call) => calledTools([call], isOurs(turn, call))))),
]

// Returns a step's status for the page. It also distinguishes retries, simulated workers that do not know the task, and
// cut answers in records without that status.
export function shownStatus(step) {
  if (openTurn(step)) return step.askedCalls?.length ? "asked" : callsNow(step).length ? "calls_tools" : "tool_results"
  if (step.status === "running" && step.attempts.length && !step.output && !step.reasoning) {
    return step.attempts.at(-1).loading ? "loading" : "retrying"
  }
  if (step.asked) return "asked"
  if (step.slot) return "slot"
  if (step.status === "completed" && step.incomplete) return "incomplete"
  if (step.status === "completed" && step.simulated && step.output.startsWith(CANNOT_ANSWER)) return "declined"
  return step.status
}

// Tells whether a model wrote this step's answer: no simulated worker, and nobody by hand.
export const isReal = (step) => Boolean(step.output_sha256 && step.model && !step.simulated && !step.given)

export const realWords = ({ model, weights }) =>
  `A real model wrote this: ${visible(model)}${weights ? `, ${parametersOf(weights.parameters)}` : ""}`

// The same in a line beside the answer.
export const reallyBy = (step) =>
  isReal(step) ? ` · real${step.weights ? `, ${parametersOf(step.weights.parameters)}` : ""}` : ""

export const RUN_STATUS = {
  queued: { glyph: "◌", word: "Queued" },
  running: { glyph: "◔", word: "Running" },
  waiting: { glyph: "‖", word: "Waits" },
  planned: { glyph: "◇", word: "Planned" },
  completed: { glyph: "✓", word: "Completed" },
  refused: { glyph: "⊗", word: "Refused" },
  filtered: { glyph: "▽", word: "Filtered" },
  cut: { glyph: "◐", word: "Cut off" },
  empty: { glyph: "∅", word: "Empty" },
  failed: { glyph: "✕", word: "Failed" },
  denied: { glyph: "⊖", word: "Denied" },
  cancelled: { glyph: "■", word: "Cancelled" },
  interrupted: { glyph: "⚡", word: "Interrupted" },
  damaged: { glyph: "⚠", word: "Damaged" },
  too_new: { glyph: "⇡", word: "Too new" },
  key_away: { glyph: "▣", word: "Key away" },
  erased: { glyph: "▒", word: "Erased" },
}

// What a person can do about a failure, by its code. The server sends it; the command line has the same text.
let table = {}
let otherwise = ""

export function takeAdvice(told) {
  table = told.by_code
  otherwise = told.otherwise
}

export const advice = (code) => table[code] ?? otherwise

// Says of an output that a later step reads that it is not whole. The messages themselves do not say so.
export function notWholeNote(step) {
  if (!step || (!step.incomplete && !notWhole(step.status))) return ""
  const sent = step.output.trim() ? "sent as it is, without a mark" : "a note that there is none was sent"
  return `not whole (${STEP_STATUS[shownStatus(step)].word}): ${sent}`
}
