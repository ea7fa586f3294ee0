// What the view adds while the plan is edited: changes on their way to Python, editing in the graph, its menu and keys.

import { AccessMenu } from "./access_menu.js"
import { el, setText } from "./dom.js"
import { GraphEdit } from "./graph_edit.js"
import { PlanChanges } from "./plan_changes.js"
import { visible } from "./text.js"

const HINT = "Drag ○: grant · click line: cut"
const KEYS =
  "Drag ○ to a later step: it reads the output · drag a card: reorder · click a line: cut · keys: G access, Alt+↑/↓ order"
const STALE = "Drawn as it was before the fault"
const MENU_PX = 340
const PAUSE_MS = 400

// Streamlit may take the element away and put it back while somebody edits, however slowly: what was not sent, the step
// that is open and the focus stay. `held` is what a person has brought the focus to and has not left since: the button
// of a step, {step}, an item of its menu, {step, item}, or a field, {step, field, from, to}.
let kept = null
let held = null
const OPENED = "plan-step-open" // kept while the browser's tab is open: also a reload finds it
addEventListener("pointerdown", () => (held = null), { capture: true })

// Notes in `held` what `of` returns for the element in `parent` that has the focus.
function hold(parent, of) {
  parent.addEventListener("focusin", ({ target }) => (held = of(target.dataset)))
  // Only another element takes the focus from it: an element that is taken away gives it to none.
  parent.addEventListener("focusout", ({ relatedTarget }) => {
    if (relatedTarget) held = null
  })
}

function changesOf(send) {
  kept ??= new PlanChanges(send)
  kept.send = send
  return kept
}

export class PlanEditing {
  // `fields` is the element that holds those of the chosen step. `send` is given what Python shall hear, `onChange` is
  // called when something waits to be heard.
  constructor({ graph, twin, fields, send, onChange }) {
    Object.assign(this, { graph, twin, fields, onChange })
    this.active = false
    this.typed = null
    this.changes = changesOf(send)
    this.edit = graph.editing = new GraphEdit(graph, {
      onChange: (change) => this.make(change),
      onSay: (words) => this.say(words),
      onAccess: (key) => this.open(key),
      onLeave: (key) => twin.focus(key),
    })
    this.menu = new AccessMenu({
      onChange: (change) => this.make(change),
      onLook: (edge) => this.edit.look(edge),
      onClose: (key) => twin.focus(key),
    })
    twin.onAccess = (key) => this.open(key)
    twin.onMove = (key, by) => this.move(key, by)
    hold(twin.element, ({ step }) => (step === undefined ? null : { step }))
    hold(this.menu.element, (item) => ({ step: this.menu.key, item }))
    hold(fields, ({ field }) => (field === undefined ? null : { step: this.selected, field }))
    graph.element.append(this.edit.bar)
    this.words = el("b", { class: "edit-note", role: "status" })
    this.hint = el("span", { class: "edit-hint", id: "edit-hint", hidden: true })
  }

  destroy() {
    this.flush()
    const field = this.heldField()
    if (field?.matches(":focus") && field.selectionStart !== null)
      Object.assign(held, { from: field.selectionStart, to: field.selectionEnd })
    this.edit.destroy()
    this.changes.destroy()
  }

  // `editor`: the page's open editor, or null. `taken`, `said`: see `live_workflow` in component.py.
  update({ run_id: runId, editor, taken, said }) {
    const active = editor !== null
    if ((this.active && !active) || runId !== this.changes.runId) {
      this.typed = null
      clearTimeout(this.pause)
      this.changes.of(runId)
    }
    this.changes.taken(taken)
    if (active && !this.active) this.changes.tell(true)
    this.active = active
    if (!active) this.menu.close(false)
    if (said !== this.said) this.say(said ?? "")
    this.said = said
  }

  // All that Python has not made yet, with what is being typed.
  get waiting() {
    return this.typed ? [...this.changes.waiting, this.typed] : this.changes.waiting
  }

  say(words) {
    setText(this.words, visible(words))
  }

  // `selected`: the step whose fields are shown. It is shown again should the element be taken away and put back.
  show(model, selected) {
    const { changes } = this
    // A plan that is drawn as it was before is not the one that would change.
    const active = this.active && !model.edited?.stale
    this.model = model
    this.selected = selected
    if (this.active) sessionStorage.setItem(OPENED, JSON.stringify([changes.runId, selected]))
    this.hint.hidden = !this.active
    this.words.hidden = !this.active || !this.words.textContent
    setText(this.hint, model.edited?.stale ? STALE : HINT)
    this.hint.title = KEYS
    this.twin.editing = active
    if (this.graph.list) this.graph.list.onKey = active ? (event, key) => this.twin.edits(event, key) : null
    if (active) this.twin.element.setAttribute("aria-describedby", "edit-hint")
    else this.twin.element.removeAttribute("aria-describedby")
    this.edit.show(model, { active, waiting: changes.waiting })
    this.menu.show(this.edit.steps)
    this.bringFocus()
  }

  // The step that was open before the element was taken away, or the page loaded again; null: none.
  openedIn(runId) {
    const [of, step] = JSON.parse(sessionStorage.getItem(OPENED) ?? "[]")
    return step !== undefined && of === runId ? step : null
  }

  heldField() {
    return held?.field ? this.fields.querySelector(`[data-field="${CSS.escape(held.field)}"]`) : null
  }

  bringFocus() {
    if (held === null || document.activeElement !== document.body) return
    const field = held.step === this.selected ? this.heldField() : null
    if (field) {
      field.focus({ preventScroll: true })
      if (held.from !== undefined) field.setSelectionRange(held.from, held.to)
    } else if (held.field || !this.edit.stepOf(held.step)) return
    else if (held.item) this.open(held.step, held.item)
    else this.twin.focus(held.step)
  }

  make(change) {
    this.flush()
    this.say("")
    this.changes.make(change)
    this.onChange()
    if (this.model) this.show(this.model, this.selected)
    this.graph.repaint()
  }

  // A text counts as a change once its typing rests.
  type(change) {
    if (this.typed && (this.typed.step !== change.step || this.typed.kind !== change.kind)) this.flush()
    this.typed = change
    clearTimeout(this.pause)
    this.pause = setTimeout(() => this.flush(), PAUSE_MS)
  }

  flush() {
    clearTimeout(this.pause)
    const { typed } = this
    this.typed = null
    if (typed) this.changes.make(typed)
  }

  open(key, at = null) {
    if (!this.edit.stepOf(key)) return
    // Beside the step, as far as there is room.
    this.menu.element.classList.toggle("left", this.graph.roomRight(key) < MENU_PX)
    this.menu.open(key, this.edit.steps, at)
  }

  move(key, by) {
    const { steps } = this.edit
    const step = steps.find((each) => each.key === key)
    if (!step) return
    const to = step.number + by
    const known = !this.changes.waiting.some(({ kind }) => kind === "undo" || kind === "redo")
    if (known && !(to in steps)) this.say(`Step ${step.number} is the ${by < 0 ? "first" : "last"} step.`)
    else this.make({ kind: "shift", step: Number(key), by })
  }
}
