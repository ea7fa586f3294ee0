// Below the inspector: what people, graders and judges hold of the run's answer or of the chosen step, and what a person
// presses to judge it. R: right, W: wrong, N: a note and a score. A later judgement counts in the place of the one before.

import { PACKED } from "./base.js"
import { el, once, setAttributes, setText } from "./dom.js"
import { runUrl } from "./socket.js"
import { visible } from "./text.js"

const DIALOG = '[role="dialog"]'
const OPEN = "dialog[open], :popover-open"
const FIELD = 'input, textarea, select, [contenteditable="true"]'
const GLYPHS = { right: "✓", wrong: "✗" }

export class Judging {
  // `root`: of the view. `ask(runId, body)`: sends a judgement, or without one only asks, and returns all that count.
  constructor({ root, ask = asked, page = document, packed = PACKED }) {
    Object.assign(this, { root, ask, page, packed })
    const button = (words, onclick, more = {}) => el("button", { type: "button", onclick, ...more }, words)
    this.ofAnswer = button("Answer", () => this.choose(true), { class: "of" })
    this.ofStep = button("", () => this.choose(false), { class: "of" })
    this.right = button("✓ Right", () => this.mark("right"), { class: "right", title: "Press R" })
    this.wrong = button("✗ Wrong", () => this.mark("wrong"), { class: "wrong", title: "Press W" })
    this.more = button("Note", () => this.openNote(), { class: "quiet", title: "A note and a score: press N" })
    this.note = el("input", {
      type: "text",
      class: "note",
      maxlength: "4000",
      dir: "auto",
      placeholder: "Why?",
      "aria-label": "Note about it",
    })
    this.score = el("input", {
      type: "number",
      class: "score",
      min: "0",
      max: "1",
      step: "any",
      placeholder: "0 to 1",
      "aria-label": "Score, from 0 (bad) to 1 (good)",
    })
    this.form = el(
      "form",
      { class: "judge-form", hidden: true, onsubmit: (event) => this.keep(event) },
      this.note,
      this.score,
      el("button", { type: "submit" }, "Keep"),
    )
    this.form.addEventListener("keydown", (event) => this.inForm(event))
    this.lines = el("div", { class: "judgements", role: "list" })
    this.fault = el("p", { class: "judge-fault", role: "alert", hidden: true })
    const of = el("div", { class: "judged", role: "group", "aria-label": "What is judged" }, this.ofAnswer, this.ofStep)
    const row = el(
      "div",
      { class: "judge-row" },
      of,
      el("span", { class: "spring" }),
      this.right,
      this.wrong,
      this.more,
    )
    this.element = el(
      "section",
      { class: "judging", "aria-label": "Judgements", hidden: true },
      row,
      this.form,
      this.lines,
      this.fault,
    )
    this.answer = true
    this.found = []
    this.keys = (event) => this.key(event)
    // Before Streamlit's own shortcuts, of which R is one.
    page.addEventListener("keydown", this.keys, { capture: true })
  }

  destroy() {
    this.page.removeEventListener("keydown", this.keys, { capture: true })
  }

  // `selected`: the key of the chosen step; null: the plan. `editor`: whether the plan is edited.
  show(model, selected, { editor }) {
    const { run } = model
    const may = this.packed === null && run !== null && model.ended && !model.replayed && !editor && !model.stopped
    this.element.hidden = !may
    if (!may) return
    if (run.run_id !== this.runId) this.open(run.run_id)
    this.selected = selected
    this.draw()
  }

  open(runId) {
    this.runId = runId
    this.found = []
    this.answer = true
    this.closeNote()
    this.say()
  }

  get step() {
    return this.answer ? null : this.selected
  }

  // Judgements of what is judged now.
  get here() {
    return this.found.filter((each) => each.step === this.step && !each.compared_with)
  }

  get own() {
    return this.here.find((each) => each.mine)
  }

  draw() {
    if (this.selected === null) this.answer = true
    this.ofStep.hidden = this.selected === null
    setText(this.ofStep, `Step ${this.selected}`)
    setAttributes(this.ofAnswer, { "aria-pressed": String(this.answer) })
    setAttributes(this.ofStep, { "aria-pressed": String(!this.answer) })
    for (const mark of ["right", "wrong"])
      setAttributes(this[mark], { "aria-pressed": String(this.own?.mark === mark) })
    const { here } = this
    once(this.lines, JSON.stringify(here), () => here.map((each) => this.line(each)))
    this.lines.hidden = !here.length
  }

  line(judgement) {
    const { mark, words, judge, by, at_utc: at, note, mine } = judgement
    const when = new Date(at)
    const time = when.toLocaleString([], { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" })
    const who = by === "person" ? visible(judge) : `${by} ${visible(judge)}`
    const said = note ? `: ${visible(note)}` : ""
    const text = el("span", { class: "judge-said", dir: "auto" }, `${who} · ${time}${said}`)
    text.title = `${who}, ${when.toLocaleString()}${said}`
    return el(
      "div",
      { class: "judgement", role: "listitem" },
      el("b", { class: mark ?? "" }, `${GLYPHS[mark] ?? "✎"} ${words}`),
      text,
      mine && el("button", { type: "button", class: "quiet", onclick: () => this.takeBack(judgement) }, "Undo"),
    )
  }

  choose(answer) {
    this.answer = answer
    this.closeNote()
    this.draw()
  }

  // A mark keeps the note and the score of before.
  mark(mark) {
    const { score = null, note = "" } = this.own ?? {}
    return this.say({ step: this.step, mark, score, note })
  }

  takeBack({ id }) {
    return this.say({ takes_back: id })
  }

  openNote() {
    this.form.hidden = !this.form.hidden
    if (this.form.hidden) return
    this.note.value = this.own?.note ?? ""
    this.score.value = this.own?.score ?? ""
    this.note.focus()
  }

  closeNote() {
    this.form.hidden = true
  }

  inForm(event) {
    event.stopPropagation()
    if (event.key !== "Escape") return
    this.closeNote()
    this.more.focus()
  }

  async keep(event) {
    event.preventDefault()
    const score = this.score.value === "" ? null : Number(this.score.value)
    const note = this.note.value.trim()
    const kept = await this.say({ step: this.step, mark: this.own?.mark ?? null, score, note })
    if (!kept) return
    this.closeNote()
    this.more.focus()
  }

  // Returns whether it was kept.
  async say(verdict) {
    const { runId } = this
    try {
      const found = await this.ask(runId, verdict)
      if (runId !== this.runId) return false
      this.found = found
      this.fault.hidden = true
      this.draw()
      return true
    } catch (error) {
      if (runId !== this.runId) return false
      setText(this.fault, `${verdict ? "Not kept" : "Judgements cannot be shown"}: ${visible(error.message)}`)
      this.fault.hidden = false
      return false
    }
  }

  key(event) {
    if (this.element.hidden || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey || event.repeat) return
    if (event.composedPath()[0].matches?.(FIELD)) return
    if (this.page.querySelector(DIALOG) !== null || this.root.querySelector(OPEN) !== null) return
    const does = { r: () => this.mark("right"), w: () => this.mark("wrong"), n: () => this.openNote() }
    const act = does[event.key.toLowerCase()]
    if (!act) return
    event.preventDefault()
    event.stopPropagation()
    act()
  }
}

async function asked(runId, verdict) {
  const sends = verdict && {
    method: "POST",
    body: JSON.stringify(verdict),
    headers: { "content-type": "application/json" },
  }
  const response = await fetch(runUrl(runId, "judgements"), sends)
  const answer = await response.json()
  if (!response.ok) throw new Error(answer.error)
  return answer.judgements
}
