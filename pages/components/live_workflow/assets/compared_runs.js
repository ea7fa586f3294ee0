// Two compared runs: answers, the graph of both plans, every step with the words that changed, both timelines. Python
// compares (`compared_view` says in which form); selecting and switching stay in the browser.

import { PACKED } from "./base.js"
import { CompareTable } from "./compare_table.js"
import { el, setText } from "./dom.js"
import { pathKey } from "./format.js"
import { Graph } from "./graph.js"
import { restyled } from "./mounting.js"
import { visible } from "./text.js"
import { Timeline } from "./timeline.js"
import { Twin } from "./twin.js"

// Largest numbers of characters of a conclusion in the largest letters, and in middle ones.
const LARGE = 16
const MEDIUM = 60
// Of two runs the first is struck out and the second underlined where they differ. Rounds of one run have names.
const SIDES = { A: "before", B: "after" }
// No bar has this path; the empty one is that of the plan.
const NO_BAR = "-"

export class ComparedRuns {
  constructor(parent) {
    this.graph = new Graph({
      onSelect: (key) => this.select(key, { bring: true }),
      onView: () => this.showTwin(),
    })
    this.twin = new Twin({
      onSelect: (key) => this.select(key),
      onOpen: (key) => this.open(key),
      onUnfold: ({ id, keys }) => {
        this.graph.unfold(id)
        this.showTwin()
        this.twin.focus(keys[0])
      },
    })
    this.table = new CompareTable({ onSelect: (key) => this.select(key) })
    this.timelines = [0, 1].map((side) => new Timeline({ onSelect: (path) => this.selectBar(side, path) }))
    this.answers = [0, 1].map(() => el("div", { class: "compared-answer" }))
    this.headline = el("p", { class: "compared-headline" })
    this.first = el("button", { type: "button", class: "first", onclick: () => this.open(this.data.first) })
    const summary = el(
      "section",
      { class: "card compared-summary", "aria-label": "Answers" },
      this.answers,
      this.headline,
      this.first,
    )
    this.legend = el("div", { class: "legend statuses", "aria-hidden": "true" })
    const keys = el("span", { class: "keys", "aria-hidden": "true" }, "←/→ select · Enter to its row")
    const footer = el(
      "div",
      { class: "graph-footer" },
      this.legend,
      el("span", { class: "spring" }),
      this.twin.element,
      keys,
      this.graph.controls,
    )
    this.empty = el("div", { class: "graph-empty" }, "Neither run has a plan.")
    const map = el(
      "section",
      { class: "card map", "aria-label": "Both plans in one graph" },
      this.graph.element,
      this.empty,
      footer,
    )
    const timelines = el(
      "div",
      { class: "compared-timelines" },
      this.timelines.map(({ element }) => element),
    )
    this.root = el("div", { class: "live-workflow compared" }, summary, map, this.table.element, timelines)
    parent.querySelector(".reserved")?.remove()
    parent.append(this.root)
    this.selected = null
  }

  destroy() {
    this.graph.destroy()
    this.root.remove()
  }

  update({ data }) {
    const text = JSON.stringify(data)
    if (text !== this.text) {
      this.text = text
      this.take(data)
    }
    restyled(this.root)
    this.graph.restyle(this.root)
    this.show()
  }

  take(data) {
    this.data = data
    const steps = new Map(data.plan.steps.map((step) => [step.key, step]))
    // What the graph and the twin ask of a run's model.
    this.model = {
      edited: data.plan,
      editedStep: (key) => steps.get(key),
      step: () => undefined,
      agentIndex,
      rounds: new Map(),
      layout: null,
    }
    function agentIndex(name) {
      const index = data.agents.indexOf(name)
      return index < 0 ? null : index
    }
    this.selected = data.first
    this.table.take(data, agentIndex)
    data.runs.forEach((run, side) => {
      this.answers[side].replaceChildren(...answerParts(run))
      const { element } = this.timelines[side]
      setText(element.querySelector("b"), of("Timeline", run.name))
      element.setAttribute("aria-label", of("Timeline", run.name))
    })
    setText(this.headline, visible(data.headline))
    this.first.disabled = data.first === null
    setText(this.first, data.first === null ? "No difference" : "First difference")
    setText(this.legend, legendText(data.plan, data.runs))
    this.empty.hidden = data.plan.steps.length > 0
    this.bars = data.timelines.map((timeline) => timeline?.bars ?? [])
  }

  show() {
    this.graph.show(this.model, this.selected)
    this.showTwin()
    this.table.select(this.selected)
    this.timelines.forEach((timeline, side) => {
      const bar = this.bars[side].find(({ key }) => key === this.selected)
      timeline.show(
        { timeline: this.data.timelines[side], agentIndex: this.model.agentIndex },
        bar ? pathKey(bar.path) : NO_BAR,
      )
    })
  }

  showTwin() {
    this.twin.show(this.model, this.selected, this.graph.stacks())
  }

  select(key, { bring = false } = {}) {
    if (key !== this.selected) {
      this.selected = key
      this.show()
    }
    if (bring) this.table.bring(key)
  }

  selectBar(side, path) {
    const key = this.bars[side].find((bar) => pathKey(bar.path) === path)?.key
    if (key) this.select(key)
  }

  // Goes to a step: its row gets the focus.
  open(key) {
    this.select(key)
    this.table.focus(key)
  }
}

function answerParts({ name, run_id, status, simulated, figures, answer }) {
  const side = SIDES[name] ? `side ${SIDES[name]}` : "muted"
  const said = SIDES[name] ? `${of("Answer", name)}, ${SIDES[name]}` : of("Answer", name)
  const caption = el(
    "div",
    { class: "compared-caption" },
    PACKED
      ? el("b", { class: side, title: `Run ${run_id}` }, said)
      : el(
          "a",
          { class: side, href: `run?run=${encodeURIComponent(run_id)}`, target: "_self", title: `Open run ${run_id}` },
          said,
        ),
    el("span", { class: "muted number" }, figures.join(" · ")),
    simulated && el("span", { class: "pill simulated" }, "simulated"),
  )
  const text = answer?.text || (answer ? "empty" : `none: the run is ${status.replace("_", " ")}`)
  const size = answer?.text ? sized(answer.kind, text.length) : "long muted"
  return [caption, el("p", { class: `conclusion ${size}`, dir: "auto", title: visible(text) }, visible(text))]
}

// Only a value that the answer marks, or what its code defines, is large.
function sized(kind, length) {
  if (kind === "text" || length > MEDIUM) return "long"
  return length <= LARGE ? "large" : "medium"
}

// Runs are A and B; rounds of one run have longer names.
const of = (what, name) => (name.length === 1 ? `${what} ${name}` : `${what} of ${name}`)

// Explains the marks that are there and have no words.
function legendText({ layout }, [a, b]) {
  const here = new Set(layout.edges.map((edge) => edge.change))
  const marks = [here.has("gained") && `⊕ sees in ${b.name}`, here.has("lost") && `⊖ saw in ${a.name}`]
  return marks.filter(Boolean).join("    ")
}
