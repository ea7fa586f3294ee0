// Shows when each step ran, once the run is over. A row is a bar on the run's time, and a button that selects its step.

import { el, setText } from "./dom.js"
import { agentColour, pathKey, seconds } from "./format.js"
import { visible } from "./text.js"

const MOST_TICKS = 6

export class Timeline {
  constructor({ onSelect }) {
    this.onSelect = onSelect
    this.drawn = null
    this.buttons = []
    this.summary = el("span", { class: "muted" })
    this.grid = el("div", { class: "timeline-grid", "aria-hidden": "true" })
    this.moment = el("i", { class: "timeline-moment", hidden: true })
    this.rows = el("div", {
      class: "timeline-rows",
      role: "toolbar",
      "aria-orientation": "vertical",
      "aria-label": "Steps by time",
    })
    this.rows.addEventListener("keydown", (event) => this.key(event))
    const head = el("header", {}, el("b", {}, "Timeline"), this.summary)
    const body = el("div", { class: "timeline-body" }, this.grid, this.rows)
    this.element = el("section", { class: "card timeline", "aria-label": "Timeline", hidden: true }, head, body)
  }

  show(model, selected) {
    const { timeline } = model
    this.element.hidden = timeline === null
    if (timeline === null) return
    if (timeline !== this.drawn) this.draw(timeline, model)
    this.moment.hidden = !model.replayed
    const chosen = this.buttons.findIndex((button) => button.dataset.step === (selected ?? ""))
    this.buttons.forEach((button, index) => {
      button.setAttribute("aria-pressed", index === chosen ? "true" : "false")
      button.tabIndex = index === Math.max(chosen, 0) ? 0 : -1
    })
  }

  // Marks the moment that a replay shows, in milliseconds of the run.
  mark(ms) {
    this.moment.style.setProperty("--at", Math.min(1, ms / (this.end ?? 1)))
  }

  draw(timeline, model) {
    this.drawn = timeline
    setText(this.summary, timeline.summary)
    const end = Math.max(timeline.end_ms, 1)
    const marks = ticks(end).map(({ at, label }) => el("span", { style: `--at: ${at / end}` }, label))
    this.grid.replaceChildren(...marks, this.moment)
    this.end = end
    this.buttons = timeline.bars.map((bar) => this.row(bar, end, model))
    this.rows.replaceChildren(...this.buttons)
  }

  row(bar, end, model) {
    const key = pathKey(bar.path)
    const began = bar.start_ms !== null
    const index = model.agentIndex(bar.agent)
    const agent = `--agent: ${agentColour(index)}`
    const from = `--from: ${(bar.start_ms ?? 0) / end}; --long: ${began ? bar.duration_ms / end : 0}`
    const when = began ? `begins at ${seconds(bar.start_ms)}` : "did not begin"
    return el(
      "button",
      {
        type: "button",
        class: bar.critical ? "timeline-row critical" : "timeline-row",
        style: `${agent}; ${from}; --depth: ${bar.depth}`,
        "data-step": key,
        "aria-label": `${visible(bar.label)}, ${when}, ${bar.text}`,
        title: when,
        onclick: () => this.onSelect(key || null),
      },
      el("span", { class: "timeline-name" }, bar.depth ? "↳ " : "", visible(bar.label)),
      el(
        "span",
        { class: "timeline-track" },
        began && el("i", { class: "timeline-bar" }),
        el("span", { class: "timeline-text number" }, bar.text),
      ),
    )
  }

  key(event) {
    const at = this.buttons.indexOf(event.target)
    const next = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: this.buttons.length - 1 }[event.key]
    if (at < 0 || next === undefined) return
    event.preventDefault()
    const button = this.buttons[Math.max(0, Math.min(this.buttons.length - 1, next))]
    button.focus()
    button.click()
  }
}

// Returns round times from 0 to `end` (milliseconds), in a suitable unit.
function ticks(end) {
  const [unit, length] = end < 1_000 ? ["ms", 1] : end < 180_000 ? ["s", 1_000] : ["min", 60_000]
  const least = end / length / MOST_TICKS
  const power = 10 ** Math.floor(Math.log10(least))
  const step = [1, 2, 5, 10].find((factor) => factor * power >= least) * power
  const count = Math.floor(end / length / step + 1e-9)
  return Array.from({ length: count + 1 }, (_, number) => {
    const value = Number((number * step).toPrecision(6))
    return { at: value * length, label: `${value} ${unit}` }
  })
}
