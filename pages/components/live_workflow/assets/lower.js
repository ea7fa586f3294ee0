// What is below the graph: the outputs of the steps, the answer, and the timeline, one at a time.

import { copyButton, el, readButton, setText } from "./dom.js"
import { count, estimateTokens } from "./format.js"
import { StreamedMarkdown, visible } from "./text.js"

const NAMES = ["Plan", "Outputs", "Answer", "Timeline"]
// More of an answer is shown by the reader.
const SHOWN = 40_000
const LATER = "It appears here when the run ends."

export class Lower {
  constructor({ panes, plan, timeline, kin, links, onRead }) {
    this.plan = plan
    this.tabs = el("div", { class: "lower-tabs", role: "tablist", "aria-label": "Below the graph" })
    this.tabs.addEventListener("keydown", (event) => this.key(event))
    this.buttons = NAMES.map((name) =>
      el("button", { type: "button", role: "tab", onclick: () => this.choose(name) }, name),
    )
    this.tabs.append(...this.buttons)
    this.answer = new Answer({ onRead })
    this.later = el("p", { class: "muted later" }, LATER)
    const when = el(
      "div",
      { class: "card when", role: "tabpanel", "aria-label": "Timeline" },
      this.later,
      timeline.element,
    )
    this.panels = { Plan: plan.element, Outputs: panes.element, Answer: this.answer.element, Timeline: when }
    panes.element.setAttribute("role", "tabpanel")
    panes.element.setAttribute("aria-label", "Outputs")
    const spring = el("span", { class: "spring" })
    const line = el("div", { class: "lower-line" }, this.tabs, kin, spring, plan.actions, links)
    this.element = el("div", { class: "lower" }, line, Object.values(this.panels))
    this.timeline = timeline
    this.reset()
  }

  // Another run: its answer opens by itself, unless somebody chooses otherwise.
  reset() {
    this.chosen = this.showAnswer = null
    this.edits(false)
    this.set("Outputs")
  }

  set(name) {
    this.name = name
    for (const button of this.buttons) {
      const on = button.textContent === name
      button.setAttribute("aria-selected", on ? "true" : "false")
      button.tabIndex = on ? 0 : -1
    }
    for (const [each, panel] of Object.entries(this.panels)) panel.hidden = each !== name
    this.showAnswer?.()
  }

  // While a plan is edited, it takes the place of the outputs.
  edits(on) {
    if (on === this.editing) return
    this.editing = on
    this.buttons[0].hidden = !on
    if (on) this.set("Plan")
    else if (this.name === "Plan") this.set(this.chosen ?? "Outputs")
  }

  choose(name) {
    if (name !== "Plan") this.chosen = name
    this.set(name)
  }

  // `reads`: whether somebody reads in an output. What has no value in a line is opened in whole.
  show(model, outcome, reads, { editor, selected }) {
    this.edits(editor !== null)
    this.plan.actions.hidden = this.name !== "Plan"
    if (editor !== null) this.plan.show(model, selected, editor)
    this.later.hidden = model.timeline !== null
    const opens = model.ended && outcome.whole ? "Answer" : "Outputs"
    if (this.chosen === null && this.name !== "Plan" && opens !== this.name && !reads) this.set(opens)
    this.showAnswer = () => this.name === "Answer" && this.answer.show(model, outcome)
    this.showAnswer()
  }

  key(event) {
    const there = this.buttons.filter((button) => !button.hidden)
    const at = there.findIndex((button) => button.textContent === this.name)
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: there.length - 1 }[event.key]
    if (to === undefined) return
    event.preventDefault()
    const next = there[(to + there.length) % there.length]
    this.choose(next.textContent)
    next.focus()
  }
}

// All of the answer, or all that is said in its place.
class Answer {
  constructor({ onRead }) {
    this.title = el("b")
    this.size = el("span", { class: "muted number" })
    this.read = readButton("Read all of the answer in full width", () => onRead(this.whole))
    setText(this.read, "Read in full width")
    this.copy = copyButton("Copy the answer", () => this.whole.text)
    this.said = el("p", { class: "answer-said", dir: "auto" })
    this.hint = el("p", { class: "muted" })
    this.prose = el("div", { class: "prose", dir: "auto" })
    this.markdown = new StreamedMarkdown(this.prose)
    const head = el("header", {}, this.title, this.size, el("span", { class: "spring" }), this.copy, this.read)
    const body = el(
      "div",
      { class: "answer-body", tabindex: "0", "aria-label": "All of the answer" },
      this.said,
      this.hint,
      this.prose,
    )
    this.element = el("div", { class: "card answer", role: "tabpanel", "aria-label": "Answer" }, head, body)
  }

  show(model, { title, conclusion, hint, text, kind }) {
    const state = `${model.run?.run_id} ${model.run?.status} ${kind} ${text?.length} ${conclusion}`
    if (state === this.state) return
    this.state = state
    const written = text?.trim() ? text : ""
    const name = `answer-${model.run?.run_id}`
    this.whole = { title: title || "Answer", text: written || [conclusion, hint].filter(Boolean).join("\n\n"), name }
    setText(this.title, title || "Answer")
    setText(this.size, written ? `${count(estimateTokens(written))} tokens` : "")
    const told = kind !== "answered"
    this.said.hidden = !told
    setText(this.said, kind === "quiet" ? LATER : visible(conclusion ?? ""))
    this.hint.hidden = !told || !hint
    setText(this.hint, hint ?? "")
    this.copy.hidden = this.read.hidden = !this.whole.text
    this.prose.hidden = !written
    this.markdown.show(written.slice(0, SHOWN), true)
  }
}
