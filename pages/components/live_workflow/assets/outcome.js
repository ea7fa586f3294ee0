// The run's outcome in its reserved place: the conclusion of the answer and its text, or why there is no answer and
// what to do. The place keeps its height, so that nothing below moves when the run ends.

import { PACKED } from "./base.js"
import { copyButton, el, setClass, setText } from "./dom.js"
import { formulaElement } from "./draw_formulas.js"
import { pathKey, seconds } from "./format.js"
import { NOT_WHOLE } from "./panes.js"
import { STEP_STATUS, advice, notWhole } from "./status.js"
import { StreamedMarkdown, isolated, visible } from "./text.js"

// Largest numbers of characters of a conclusion in the largest letters, and of one in a single line.
const LARGE = 16
const MEDIUM = 40
// How much of an answer is rendered while only its first lines are visible.
const GLIMPSE = 1_500

// Ids of runs that were cancelled on this page since it was loaded.
export const cancelledHere = new Set()

export class Outcome {
  constructor({ onSelect, onGoOn, onWorkers, onRead }) {
    this.onRead = onRead
    this.title = el("span", { class: "outcome-title" })
    this.source = el("button", {
      type: "button",
      class: "quiet source",
      onclick: () => this.from && onSelect(this.from),
    })
    this.conclusion = el("p", { class: "conclusion", dir: "auto" })
    this.hint = el("p", { class: "muted hint" })
    this.copy = copyButton("Copy the answer", () => this.answer ?? "")
    this.more = el("button", { type: "button", class: "more", onclick: () => this.read() }, "Show all")
    this.goOn = el("button", { type: "button", class: "go-on", onclick: onGoOn, hidden: true })
    this.workers = el(
      "button",
      { type: "button", class: "to-workers", onclick: onWorkers, hidden: true },
      "Choose real workers",
    )
    this.body = el("div", { class: "prose outcome-body", dir: "auto" })
    this.markdown = new StreamedMarkdown(this.body)
    // The line that is being written stands elsewhere than the answer will.
    this.stream = el("div", { class: "prose outcome-stream", dir: "auto" })
    this.streamed = new StreamedMarkdown(this.stream)
    const line = el("div", { class: "outcome-line" }, this.title, this.source)
    this.head = el(
      "div",
      { class: "outcome-head", "aria-live": "polite" },
      line,
      this.stream,
      this.conclusion,
      this.hint,
    )
    const actions = el("div", { class: "outcome-actions" }, this.workers, this.goOn, this.more, this.copy)
    this.element = el("section", { class: "card outcome", "aria-label": "Answer" }, this.head, this.body, actions)
    this.resizing = new ResizeObserver(() => this.measure())
    this.resizing.observe(this.element)
    this.resizing.observe(this.body)
  }

  destroy() {
    this.resizing.disconnect()
  }

  // Whether a change is read aloud.
  announce(on) {
    this.head.setAttribute("aria-live", on ? "polite" : "off")
  }

  read() {
    const { conclusion, hint } = this.shown
    const text = this.answer ?? this.shown.text ?? [conclusion, hint].filter(Boolean).join("\n\n")
    this.onRead({ title: this.title.textContent || "Answer", text, name: `answer-${this.runId}` })
  }

  // Offers the whole answer if it does not fit.
  measure() {
    const cut = (part) => part.scrollHeight > part.clientHeight + 2 || part.scrollWidth > part.clientWidth + 2
    this.more.hidden = !cut(this.body) && !cut(this.conclusion) && !cut(this.hint)
  }

  // ``goOn``: what the page offers for a run with this end, if anything.
  show(model, goOn) {
    const { run } = model
    this.runId = run?.run_id
    const last = run && model.lastStep()
    this.from = last ? pathKey(last.path) : null
    this.answer = run?.answer ?? null
    this.goOn.hidden = !goOn || !model.editable
    setText(this.goOn, `▶ ${goOn}`)
    const shown = outcomeOf(model, run, last)
    this.shown = shown
    setClass(this.element, `card outcome ${shown.kind}`)
    setText(this.title, shown.title)
    this.title.hidden = !shown.title
    this.source.hidden = !last || !shown.sourced
    setText(this.source, last ? `step ${this.from} · ${isolated(last.agent)}` : "")
    const conclusion = visible(shown.conclusion ?? "")
    this.conclusion.hidden = !conclusion
    this.showConclusion(conclusion, shown.formula)
    setClass(this.conclusion, `conclusion ${sized(conclusion, shown.code)}`)
    this.hint.hidden = !shown.hint
    setText(this.hint, shown.hint ?? "")
    this.workers.hidden = !shown.workers || PACKED !== null
    this.copy.hidden = !this.answer
    this.body.hidden = shown.text === undefined || !shown.done
    this.stream.hidden = shown.text === undefined || shown.done
    if (shown.text !== undefined) this.write(shown.text, shown.done)
    this.measure()
  }

  // A conclusion that one line cannot show as written is rendered.
  showConclusion(text, tex) {
    if (!tex) return setText(this.conclusion, text)
    if (this.conclusion.firstChild?.dataset?.source === tex) return
    this.conclusion.replaceChildren(formulaElement({ source: tex, tex, instead: text, display: false, drawn: true }))
  }

  write(text, done) {
    if (done) this.markdown.show(text.slice(0, GLIMPSE), true)
    else this.streamed.show(text.slice(-GLIMPSE).trimEnd().split("\n").at(-1), false)
  }
}

// Returns what the page says about a run: {title, kind, conclusion, hint, text, done, sourced, workers, code}.
function outcomeOf(model, run, last) {
  if (run === null) return { title: "The answer appears here when this plan has run", kind: "quiet" }
  if (["damaged", "too_new", "key_away"].includes(run.status)) {
    const kind = run.status === "damaged" ? "failed" : "cancelled"
    const hint = run.status === "key_away" ? undefined : READ
    return { title: "Not all of this run can be read", kind, conclusion: run.error, hint }
  }
  if (run.answer !== null) return answered(model, run, last)
  const none = { title: "No answer", kind: "cancelled", hint: model.steps.size ? KEPT : NO_PLAN }
  switch (run.status) {
    case "denied":
      return { ...none, kind: "failed", conclusion: run.error }
    case "failed":
      return {
        ...none,
        kind: "failed",
        conclusion: sentence(run.error ?? ""),
        hint: model.stopped ? STOPPED : advice(run.error_code),
      }
    case "cancelled":
      return { ...none, conclusion: cancelled(run) }
    case "interrupted":
      return { ...none, conclusion: "The program ended during this run." }
    case "planned":
      return {
        title: "Plan only",
        kind: "quiet",
        conclusion: "The plan is written and nothing has run.",
        hint: "Edit it, or run it as it stands.",
      }
  }
  const quiet = {
    kind: "quiet",
    sourced: Boolean(last),
    title: last ? "Answer will come from" : "Answer will come from the plan’s last step",
    hint: "What it comes to stands here when the run is over.",
  }
  if (last?.status !== "running" || !last.output) return quiet
  return { ...quiet, title: "Answer, being written by", hint: undefined, text: last.output, done: false }
}

function answered(model, run, last) {
  const { kind, text, formula } = model.conclusion
  if (notWhole(run.status)) return endedShort(model, run, last)
  const answer = {
    title: "Answer",
    kind: "answered",
    sourced: true,
    conclusion: text,
    text: run.answer,
    done: true,
    formula,
    code: kind === "code",
  }
  const amber = { ...answer, title: "No answer", kind: "declined" }
  if (kind === "empty") return { ...amber, text: undefined, conclusion: "The last step wrote nothing.", hint: EMPTY }
  if (kind === "declined" && last?.simulated) {
    return {
      ...amber,
      conclusion: "This worker is simulated and knows only the example tasks.",
      hint: SIMULATED,
      workers: true,
    }
  }
  if (kind === "declined") return { ...amber, hint: DECLINED }
  if (last?.incomplete) return { ...answer, title: "Answer, cut off", kind: "declined", hint: CUT }
  // A text that marks no value stands for itself, from its beginning.
  if (kind === "text") return { ...answer, title: "", conclusion: undefined }
  return text === visible(run.answer).trim() ? { ...answer, text: undefined } : answer
}

// Describes a run whose last step has an incomplete answer: how it ended, who said so, and what there is of it.
function endedShort(model, run, last) {
  const written = run.answer.trim() !== ""
  const [tool] = last?.tool_calls ?? []
  const called = tool ? `It called the tool ${visible(tool.name)} instead of answering.` : ""
  const said = visible(last?.refusal ?? "") || called
  const whole = `${NOT_WHOLE[run.status]}.`
  const what = advice(`Answer${run.status[0].toUpperCase()}${run.status.slice(1)}`)
  return {
    title: written && run.status === "cut" ? "Answer, cut off" : `No answer: ${STEP_STATUS[run.status].word}`,
    kind: "declined",
    sourced: true,
    conclusion: said || (written ? model.conclusion.text : whole),
    hint: !said && written ? `${whole} ${what}` : what,
    text: written ? run.answer : undefined,
    done: true,
  }
}

const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1)

function sized(conclusion, code) {
  const size = conclusion.length <= LARGE ? "large" : conclusion.length <= MEDIUM ? "medium" : "long"
  return code ? `${size} code` : size
}

function cancelled(run) {
  // The record does not say on which page it was cancelled; only that page knows.
  const page = cancelledHere.has(run.run_id) ? "from this page" : "from a page of the inspector"
  const { actor, door } = run.ended_by ?? {}
  const after = `after ${seconds(run.duration_ms)}.`
  if (actor?.kind === "program") return `Cancelled ${after} The program was ended.`
  return `Cancelled ${door === "page" ? page : `by ${actor?.name ?? "someone"}`} ${after}`
}

const STOPPED = "What was written is kept below. Fix the storage error, restart the program, then resume the run."
const READ = "Everything up to that place is shown below. What happened after it is not known."
const KEPT = "What the steps wrote until then is kept below; a re-run pays only for what is missing."
const NO_PLAN = "No step had begun. Press Run for a new plan."
const SIMULATED = "Take one of the examples above, or choose real workers for this task."
const DECLINED = "Ask in other words, or give the step to another worker under Edit plan: finished steps are reused."
const EMPTY = "Give the step to another worker under Edit plan, or ask in other words: finished steps are reused."
const CUT = "The provider stopped before the end. Raise max_tokens of this worker, or ask for a shorter answer."
