// What else the Conductor could have chosen: a row for each choice of its plan that was open.

import { el } from "./dom.js"
import { agentColour } from "./format.js"
import { visible } from "./text.js"

const READS = { none: "reads none", some: "reads some", all: "reads all", other: "other" }

const BY_MODEL =
  "Probabilities of the Conductor’s own model, where its grammar left a choice. Choices that are not listed were certain."
const BY_SERVER =
  "Shares of the likeliest tokens that the Conductor’s server named, where they mean different choices. What it did not name, and tokens that are no such choice, are the rest. Choices that are not listed had no second one among those."

const told = (rest) => rest !== null && rest !== undefined

const share = (probability) => probability.toFixed(2)

// Returns the words of an option: a worker's name, or what an access list would have granted.
export const inWords = (field, value) => (field === "access_list" ? READS[value] : value)

export function consideredRows(model, round) {
  if (!round?.considered?.length) return []
  return [
    el("h4", {}, "What else it considered"),
    el("p", { class: "muted small" }, round.considered.some(({ rest }) => told(rest)) ? BY_SERVER : BY_MODEL),
    el("dl", { class: "considered" }, ...round.considered.flatMap((choice) => row(model, choice))),
  ]
}

function row(model, { step, field, options, rest }) {
  const what = field === "agent" ? "agent" : "access list"
  return [
    el("dt", { class: "number" }, `Step ${step} · ${what}`),
    el(
      "dd",
      {},
      el("span", { class: "odds", "aria-hidden": "true" }, ...options.map((option) => bar(model, field, option))),
      el(
        "span",
        { class: "options" },
        ...options.map((option) => named(model, field, option)),
        told(rest) && restOf(rest),
      ),
    ),
  ]
}

function bar(model, field, { value, probability }) {
  const part = el("i", {})
  part.style.flexGrow = String(probability)
  part.style.setProperty("--agent", colour(model, field, value))
  return part
}

function named(model, field, { value, probability }) {
  const dot = field === "agent" && value !== "other" ? el("span", { class: "dot", "aria-hidden": "true" }) : null
  dot?.style.setProperty("--agent", colour(model, field, value))
  return el("span", { class: "option number" }, dot, `${visible(inWords(field, value))} ${share(probability)}`)
}

const restOf = (rest) => el("span", { class: "option number muted" }, `rest ${share(rest)}`)

function colour(model, field, value) {
  const index = field === "agent" ? model.agentIndex(value) : null
  return agentColour(index)
}
