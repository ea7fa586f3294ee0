// The Edit tab: the fields of a step while the plan is edited, each with what is wrong there. What a person does here
// goes to Python as changes of the plan; what Python answers late takes nothing back that was typed meanwhile.

import { el, once, setAttributes, setText } from "./dom.js"
import { accessList, agentColour, count, plural } from "./format.js"
import { fieldsAsMeant, textAsMeant } from "./plan_changes.js"
import { withChips } from "./task_words.js"
import { isolated, visible } from "./text.js"

// A granted output of so many tokens is marked: it fills the prompt of whoever reads it.
const LARGE_TOKENS = 1000

export function edit(body, given) {
  const before = el("div")
  const after = el("div", { class: "edit-fields" })
  body.append(before, after)
  const summary = stepSummary(before, given)
  const fields = new StepFields(after, given)
  return (model, step, inspector) => {
    const { editor, selected, waiting } = inspector
    const own = ownFields(editor, step, selected)
    before.hidden = Boolean(own)
    after.hidden = !own
    if (own) fields.show({ model, step, editor, own, waiting })
    else summary(model, step, inspector)
  }
}

// Returns the step as it is edited; undefined: it is in no edit, or has begun in a run that waits.
export function ownFields(editor, step, selected) {
  if (editor?.of === "waiting" && step && step.status !== "waiting") return undefined
  return editor?.steps.find(({ key }) => key === selected)
}

// Whether a step can be changed: the run has ended, or waits and has not begun it. Inner rounds are no part of an edit.
export const mayEdit = (model, step, editable) =>
  editable && model.changeable && step.path.length === 1 && (model.ended || step.status === "waiting")

// What the step is told and may read, while nothing can be changed here.
function stepSummary(body, { onEdit, onAsk }) {
  const list = el("dl", { class: "figures-list" })
  const hint = el("p", { class: "muted small" })
  let path = null
  const button = el("button", { type: "button", class: "primary", onclick: () => onEdit(path) }, "Edit this step")
  const again = againButton(() => onAsk("again", path))
  body.append(list, el("div", { class: "actions" }, button, again), hint)
  return (model, step, { editable, editor }) => {
    path = step.path
    once(list, `${step.instruction}|${step.agent}|${accessList(step.access_list)}`, () => [
      el("dt", {}, "Agent"),
      el("dd", {}, isolated(step.agent)),
      el("dt", {}, "Access list"),
      el("dd", {}, el("code", {}, accessList(step.access_list))),
      el("dt", {}, "Instruction"),
      el("dd", { dir: "auto" }, withChips(step.instruction, visible)),
    ])
    const inner = step.path.length > 1
    const possible = mayEdit(model, step, editable)
    const removed = editor !== null && !inner && possible
    button.hidden = again.hidden = removed
    button.disabled = !possible
    again.disabled = button.disabled || !model.ended
    setText(hint, removed ? "This step is removed. Undo brings it back." : editHint(model, possible, inner))
  }
}

const againButton = (onclick) =>
  el(
    "button",
    {
      type: "button",
      onclick,
      title: "Alone or from here on, once or many times, with this or other workers",
    },
    "Run this step again…",
  )

function editHint(model, possible, inner) {
  if (inner)
    return "This step belongs to a plan that the Conductor wrote while the run went on; edit the step that opened it."
  if (model.ended || !model.changeable)
    return possible
      ? "A re-run is a new run; steps whose input stays the same are reused."
      : "The plan can be edited when the run is over, or waits."
  const later = "Once the run has ended, a step can be asked again and its output written or kept."
  return possible
    ? `This run goes on with the changed step as soon as somebody approves it. ${later}`
    : `This step has begun; change the steps that have not. ${later}`
}

class StepFields {
  constructor(body, { onChange, onType, onAsk }) {
    Object.assign(this, { onChange, onAsk })
    const type = (field, kind) => onType({ kind, step: Number(this.key), text: field.value.toWellFormed() })
    this.instruction = textField("instruction", (field) => type(field, "instruct"))
    this.agent = el("select", {
      "data-field": "agent",
      onchange: () => this.make("assign", { agent: this.agent.value }),
    })
    this.about = el("p", { class: "muted small" })
    this.all = el("button", { type: "button", onclick: () => this.make("all") }, "All earlier")
    this.only = el("button", { type: "button", onclick: () => this.make("only") }, "Only these")
    this.which = el("span", { class: "either", role: "group", "aria-label": "May read" }, this.all, this.only)
    this.access = el("div", { class: "access-list", role: "group" })
    this.rows = new Map()
    this.sum = el("p", { class: "muted small" })
    this.output = el("div", { class: "edit-output" })
    this.written = textField("output", (field) => type(field, "write"))
    this.release = el("button", { type: "button", onclick: () => this.make("release") })
    this.write = el("button", { type: "button", onclick: () => this.begin() }, "Write output…")
    this.pin = el("button", { type: "button", onclick: () => this.make("pin") }, "Keep its output")
    this.again = againButton(() => this.onAsk("again", this.step.path))
    this.given = el("p", { class: "warn small" })
    this.hint = el("p", { class: "muted small" })
    this.output.append(
      this.given,
      this.written,
      el("div", { class: "actions" }, this.release, this.write, this.pin, this.again),
      this.hint,
    )
    this.notes = new Map(["instruction", "agent", "access_list", "workflow"].map((name) => [name, el("div")]))
    const section = (words, ...more) => el("h4", { class: "section" }, words, ...more)
    this.access.append(this.sum)
    body.append(
      section("Instruction"),
      this.instruction,
      this.notes.get("instruction"),
      section("Agent"),
      this.agent,
      this.about,
      this.notes.get("agent"),
      section("May read", this.which),
      this.access,
      this.notes.get("access_list"),
      this.notes.get("workflow"),
      section("Output"),
      this.output,
    )
  }

  make(kind, more = {}) {
    this.onChange({ kind, step: Number(this.key), ...more })
  }

  // A written output begins with the recorded one.
  begin() {
    this.make("write", { text: this.step?.output ?? "" })
    this.opensOutput = true
  }

  show({ model, step, editor, own, waiting }) {
    Object.assign(this, { key: own.key, step, model })
    const meant = fieldsAsMeant(editor.steps, waiting).find(({ key }) => key === own.key) ?? own
    this.instruction.setAttribute("aria-label", `Instruction of step ${own.number}`)
    setField(this.instruction, textAsMeant(own.key, "instruct", own.instruction, waiting))
    this.showAgent(editor, own, meant)
    this.showAccess(model, editor, own, meant)
    this.showOutput(editor, own, waiting)
    for (const [name, box] of this.notes) this.showNotes(box, name, editor, own)
  }

  showAgent({ agents }, own, meant) {
    const offered = agents.some(({ name }) => name === meant.agent)
      ? agents
      : [...agents, { name: meant.agent, says: "" }]
    once(this.agent, JSON.stringify(offered), () =>
      offered.map(({ name }) => el("option", { value: name }, isolated(name) || "nobody")),
    )
    this.agent.setAttribute("aria-label", `Agent of step ${own.number}`)
    if (this.agent.value !== meant.agent) this.agent.value = meant.agent
    setText(this.about, visible(offered.find(({ name }) => name === meant.agent)?.says ?? ""))
  }

  // A row for each earlier step: whether it is read, and how much that is.
  showAccess(model, { steps }, own, meant) {
    const earlier = steps.slice(0, own.number)
    const all = meant.access === "all"
    const reads = all ? earlier.map(({ key }) => key) : meant.access
    this.access.setAttribute("aria-label", `Step ${own.number} may read`)
    this.which.hidden = earlier.length === 0
    this.all.setAttribute("aria-pressed", all ? "true" : "false")
    this.only.setAttribute("aria-pressed", all ? "false" : "true")
    for (const [key, row] of this.rows) {
      if (earlier.some((each) => each.key === key)) continue
      row.element.remove()
      this.rows.delete(key)
    }
    earlier.forEach((each, place) => {
      const row = this.row(each.key)
      showRow(row, model, each, { reads: reads.includes(each.key), before: own.before })
      if (this.access.children[place] !== row.element)
        this.access.insertBefore(row.element, this.access.children[place])
    })
    setText(this.sum, earlier.length ? sumInWords(model, reads, own.before) : "It is the first step: it reads nothing.")
  }

  row(key) {
    if (!this.rows.has(key)) {
      const box = el("input", { type: "checkbox", "data-field": `read-${key}`, "data-read": key })
      box.addEventListener("change", () => this.make(box.checked ? "give" : "cut", { read: Number(key) }))
      const row = { box, name: el("b"), size: el("span", { class: "muted number small" }), mark: el("span") }
      const dot = el("span", { class: "dot", "aria-hidden": "true" })
      row.element = el("label", { class: "access-row" }, box, dot, row.name, row.size, row.mark)
      this.rows.set(key, row)
    }
    return this.rows.get(key)
  }

  showOutput({ of, not_yet: notYet }, own, waiting) {
    const { given } = own
    const written = given?.how === "written"
    this.written.hidden = !given
    this.written.readOnly = !written
    this.written.setAttribute("aria-label", `Output of step ${own.number}, ${written ? "written by you" : "kept"}`)
    if (given) setField(this.written, written ? textAsMeant(own.key, "write", given.text, waiting) : given.text)
    this.given.hidden = !given
    setText(
      this.given,
      !given ? "" : given.text ? `${written ? "✎" : "⚲"} ${visible(given.says)}` : "△ Still empty: its worker answers.",
    )
    this.release.hidden = !given
    setText(this.release, `Let ${isolated(own.agent)} answer`)
    this.write.hidden = this.pin.hidden = Boolean(given) || of !== "ended"
    this.pin.disabled = !own.pins
    this.again.hidden = !this.step || of !== "ended"
    setText(this.hint, notYet || (given ? "" : OUTPUT_HINT))
    if (!written || !this.opensOutput) return
    this.opensOutput = false
    this.written.focus()
  }

  showNotes(box, field, { faults, warnings }, own) {
    const here = (notes) => notes.filter((note) => note.key === own.key && note.field === field)
    const [bad, doubtful] = [here(faults), here(warnings)]
    const beyond = field === "access_list" && own.beyond
    once(box, JSON.stringify([bad, doubtful, beyond]), () =>
      [
        ...bad.map(({ message }) => el("p", { class: "bad small" }, `✕ ${visible(message)}`)),
        ...doubtful.map(({ message }) => el("p", { class: "warn small" }, `△ ${visible(message)}`)),
        beyond && el("button", { type: "button", onclick: () => this.make("only") }, "Cut what it cannot read"),
        doubtful.some(({ untold }) => untold) &&
          el("button", { type: "button", onclick: () => this.make("tell") }, "Tell it the task"),
      ].filter(Boolean),
    )
  }
}

const OUTPUT_HINT =
  "Write output: a person sets it. Keep its output: it is not asked again, whatever changes before it."

function textField(name, onInput) {
  const field = el("textarea", { "data-field": name, rows: "4", dir: "auto", spellcheck: "false" })
  field.addEventListener("input", () => onInput(field))
  return field
}

// Writes what the plan says into a field, and leaves the cursor where it is.
function setField(field, text) {
  if (text === null || field.value === text) return
  const { selectionStart, selectionEnd } = field
  field.value = text
  if (field.matches(":focus")) field.setSelectionRange(selectionStart, selectionEnd)
}

function showRow({ box, name, size, mark, element }, model, step, { reads, before }) {
  if (box.checked !== reads) box.checked = reads
  const index = model.agentIndex(step.agent)
  element.style.setProperty("--agent", agentColour(index))
  setText(name, `${step.number} · ${isolated(step.agent)}`)
  const tokens = tokensOf(model, step.key)
  setText(size, tokens === null ? "no output yet" : plural(tokens, "token"))
  const was = before?.includes(step.key) ?? reads
  const [word, kind] = changeWord(reads, was, tokens)
  setText(mark, word)
  setAttributes(mark, { class: `chip ${kind}`, title: word === "large" ? LARGE : null })
  mark.hidden = !word
}

const LARGE = "A large part of its prompt: read it in Outputs, and ask for less if it is too much"

function changeWord(reads, was, tokens) {
  if (reads && !was) return ["added", "completed"]
  if (!reads && was) return ["cut", "failed"]
  return reads && tokens >= LARGE_TOKENS ? ["large", "cut"] : ["", ""]
}

// Returns the tokens of the recorded output; null: there is none.
function tokensOf(model, key) {
  const step = model.step(key)
  return step?.output ? model.stepTokens(step) : null
}

function sumInWords(model, reads, before) {
  const sum = (keys) => keys.reduce((total, key) => total + (tokensOf(model, key) ?? 0), 0)
  const now = sum(reads)
  const said = reads.length ? `Reads ${plural(now, "token")}` : "Reads nothing but its instruction"
  const more = before === null ? 0 : now - sum(before)
  return more ? `${said}, ${count(Math.abs(more))} ${more > 0 ? "more" : "fewer"} than before.` : `${said}.`
}
