// The run's outcome in its reserved place: the answer, or why there is none and what to do.

import { copyButton, el, setClass, setText } from "./dom.js"
import { pathKey, seconds } from "./format.js"
import { beginning } from "./panes.js"
import { advice } from "./status.js"
import { StreamedMarkdown, visible } from "./text.js"

export class Outcome {
  constructor({ onSelect, onGoOn }) {
    this.title = el("span", { class: "outcome-title" })
    this.source = el("button", { type: "button", class: "quiet", onclick: () => this.from && onSelect(this.from) })
    this.copy = copyButton("Copy the answer", () => this.answer ?? "")
    this.more = el("button", { type: "button", class: "quiet more", onclick: () => this.toggle() }, "Show all")
    this.goOn = el("button", { type: "button", class: "go-on", onclick: onGoOn, hidden: true })
    this.body = el("div", { class: "prose outcome-body" })
    this.markdown = new StreamedMarkdown(this.body)
    const actions = el("div", { class: "outcome-actions" }, this.goOn, this.more, this.copy)
    const head = el("div", { class: "outcome-head" }, this.title, this.source, el("span", { class: "spring" }), actions)
    this.element = el("section", { class: "card outcome", "aria-label": "Answer" }, head, this.body)
    this.resizing = new ResizeObserver(() => this.measure())
    this.resizing.observe(this.body)
  }

  destroy() {
    this.resizing.disconnect()
  }

  toggle() {
    const all = this.element.classList.toggle("all")
    setText(this.more, all ? "Show less" : "Show all")
  }

  measure() {
    // Text that does not fit flows into columns that stand outside the body, to its right.
    const { scrollWidth, clientWidth, scrollHeight, clientHeight } = this.body
    const fits = scrollWidth <= clientWidth + 2 && scrollHeight <= clientHeight + 2
    const all = this.element.classList.contains("all")
    this.more.hidden = fits && !all
    // What an answer comes to stands at its end: where not all of it fits, its last columns are shown.
    this.body.scrollLeft = fits || all ? 0 : scrollWidth
  }

  // ``goOn``: what the page offers for a run that has ended so, if anything.
  show(model, goOn) {
    const { run } = model
    const last = run && [...model.steps.values()].filter((step) => step.path.length === 1).at(-1)
    this.from = last ? pathKey(last.path) : null
    this.answer = run?.answer ?? null
    this.source.hidden = !last
    setText(this.source, last ? `step ${this.from} · ${visible(last.agent)}` : "")
    this.goOn.hidden = !goOn || !model.editable
    setText(this.goOn, `▶ ${goOn}`)
    this.copy.hidden = this.answer === null
    if (this.answer !== null) this.markdownState("Answer", "answered", this.answer, true)
    else if (run === null) this.note("Answer", "", "The answer stands here when a run is over.")
    else if (run.status === "damaged" || run.status === "too_new") this.note("Not all of this run can be read", "failed", run.error, READ)
    else if (run.status === "failed") this.note("No answer", "failed", `${run.error_code}: ${run.error}`, model.stopped ? STOPPED : advice(run.error_code))
    else if (run.status === "cancelled") this.note("No answer", "cancelled", this.cancelled(run), KEPT)
    else if (run.status === "interrupted") this.note("No answer", "cancelled", "The program ended during this run.", KEPT)
    else if (run.status === "planned") this.note("Plan only", "", "The plan is written and nothing has run.", "Edit it or run it as it stands.")
    else if (last?.status === "running" && last.output) this.markdownState("Answer, being written", "", last.output, false)
    else this.note("Answer", "", last ? `Comes from step ${this.from}, ${visible(last.agent)}.` : "Comes from the plan's last step.")
    this.measure()
  }

  cancelled(run) {
    const who = run.ended_by === "page" ? "from this page" : `by ${run.ended_by ?? "someone"}`
    return `Cancelled ${who} after ${seconds(run.duration_ms)}.`
  }

  markdownState(title, kind, text, done) {
    setText(this.title, title)
    setClass(this.element, this.classes(kind))
    if (this.noted) this.markdown.reset()
    this.noted = null
    this.markdown.show(beginning(text), done)
  }

  note(title, kind, text, hint = "") {
    setText(this.title, title)
    setClass(this.element, this.classes(`${kind} noted`))
    if (this.noted === text + hint) return
    this.noted = text + hint
    this.markdown.reset()
    const lines = [el("p", { class: kind ? "said" : "muted" }, visible(text)), hint && el("p", { class: "muted" }, hint)]
    this.body.replaceChildren(...lines.filter(Boolean))
  }

  classes(kind) {
    return `card outcome ${kind}${this.element.classList.contains("all") ? " all" : ""}`
  }
}

const STOPPED = "What was written is kept below. Once that is mended, start the program again: the run can then be resumed."
const READ = "Below stands what can be read, up to that place. What the steps did after it is not known here."
const KEPT = "What the steps wrote until then is kept below; a re-run pays only for what is missing."
