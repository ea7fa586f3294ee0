// What the view says about a run as a whole, and which of its steps it shows.

import { el } from "./dom.js"
import { count, doing, shareDone } from "./format.js"
import { planTokens } from "./model.js"
import { STEP_STATUS, notWhole, shownStatus } from "./status.js"
import { visible } from "./text.js"

export function planText(model) {
  if (model.run === null) return ""
  if (model.edited) return "✎ edited, not run"
  const round = model.rounds.get("")
  const name = model.run.conductor?.name
  if (model.planning) return `${name ?? "plan"} · ${round?.progress?.phase ?? "writing"}…`
  if (round?.status === "rejected") return `${name} wrote no usable plan · view`
  if (round?.status === "unfinished" && round.raw) return "plan not finished · view"
  if (round?.source === "parent") return "plan reused · view"
  if (round?.source === "file") return "given plan · view"
  if (!name || round?.source !== "conductor") return "no plan"
  return `plan by ${name} · view`
}

const SHOWN_OF_PROSE = 400

// What is shown until the first step can be read.
export function conductorDoing(model) {
  const round = model.rounds.get("") ?? {}
  const { progress, reasoning, raw } = round
  if (raw && !progress)
    return `The Conductor writes before its plan, ${count(planTokens(round))} tokens so far: … ${visible(raw.slice(-SHOWN_OF_PROSE)).trim()}`
  if (reasoning && !progress)
    return `The Conductor is thinking, ${count(planTokens(round))} tokens so far; its plan follows…`
  return progress ? `The Conductor: ${doing(progress)}…` : "The Conductor is reading the task…"
}

// Draws a bar below the words where it is known how much is done.
export function showShare(element, model) {
  const { progress } = model.rounds.get("") ?? {}
  const share = model.ended || !progress ? null : shareDone(progress)
  element.toggleAttribute("data-share", share !== null)
  element.style.setProperty("--share", `${(100 * (share ?? 0)).toFixed(1)}%`)
}

// Returns the glyphs of the usual statuses and of all others in this run, but for a step that is being written: that one
// says so itself, and a word that comes and goes would move its neighbours.
export function legendText(model) {
  const here = new Set(model.ordered().map(shownStatus))
  here.delete("draft")
  const listed = Object.entries(STEP_STATUS).filter(([name]) => USUAL.has(name) || here.has(name))
  return listed.map(([, { glyph, word }]) => `${glyph} ${word}`).join("    ")
}

// Explains the marks on edges. Cards need no legend, because they name their change in words.
export function editedLegend({ layout }) {
  const here = new Set(layout.edges.map((edge) => edge.change))
  return [here.has("gained") && "⊕ sees now", here.has("lost") && "⊖ sees no more"].filter(Boolean).join("    ")
}

const USUAL = new Set(["waiting", "running", "completed"])

// Returns the step that made an ended run fail, or else the one that gives the answer.
export function whatMatters(model, steps) {
  const denied = model.run.status === "denied" && steps.find((step) => step.status === "denied")
  if (denied) return denied
  const failed =
    model.run.status === "failed" &&
    (steps.find((step) => step.status === "failed") ?? steps.find((step) => notWhole(step.status)))
  return failed || model.lastStep()
}

// Before the first run, explains what will be shown here.
export function howItWorks() {
  const cards = [
    [
      "The Conductor plans",
      "It writes steps: what to do, which worker does it, and which earlier outputs that worker may see.",
    ],
    ["Workers answer", "Each step starts as soon as what it may see is there. You watch the text arrive."],
    [
      "You see and steer",
      "What each step saw, what was withheld, what it cost. Change a step; only what changed runs again.",
    ],
  ]
  return cards.flatMap(([title, text], index) => [
    ...(index ? [el("span", { class: "how-arrow", "aria-hidden": "true" }, "→")] : []),
    el("div", { class: "how-card" }, el("b", {}, title), el("p", {}, text)),
  ])
}
