// What the view adds while the plan's editor is open: editing in the graph, its menu, its keys, and words about it.

import { AccessMenu } from "./access_menu.js"
import { el, setText } from "./dom.js"
import { GraphEdit } from "./graph_edit.js"
import { PlanChanges } from "./plan_changes.js"
import { visible } from "./text.js"

const HINT =
  "✎ Drag ○ to a later step: it sees the output · drag a card: reorder · click a line: cut · keys: G access, Alt+↑/↓ order"
const STALE = "✎ Drawn as it was before: correct the fault to edit here."
const MENU_PX = 340

// Streamlit may take the element away and put it back while somebody edits, however slowly: what was not sent and the
// focus stay. `held` is what a person has brought the focus to and has not left since: the button of a step, {step}, or
// an item of its menu, {step, item}, by their keys.
let kept = null
let held = null
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
  // `send` is given what Python shall hear.
  constructor({ graph, twin, send }) {
    Object.assign(this, { graph, twin })
    this.active = false
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
    graph.element.append(this.edit.bar)
    this.words = el("b", { role: "status" })
    this.hint = el("span", { id: "edit-hint" })
    this.element = el("p", { class: "edit-hint", hidden: true }, this.words, this.hint)
  }

  destroy() {
    this.edit.destroy()
    this.changes.destroy()
  }

  // `open`: whether the page's editor is open. `taken`, `said`: see `live_workflow` in component.py.
  update({ run_id: runId, open, taken, said }) {
    const active = open !== null
    if ((this.active && !active) || runId !== this.changes.runId) this.changes.of(runId)
    this.changes.taken(taken)
    if (active && !this.active) this.changes.tell(true)
    this.active = active
    if (!active) this.menu.close(false)
    if (said !== this.said) this.say(said ?? "")
    this.said = said
  }

  say(words) {
    setText(this.words, visible(words))
  }

  show(model) {
    const { changes } = this
    // A plan that is drawn as it was before is not the one that would change.
    const active = this.active && !model.edited?.stale
    this.model = model
    this.element.hidden = !this.active
    setText(this.hint, model.edited?.stale ? STALE : HINT)
    this.twin.editing = active
    if (this.graph.list) this.graph.list.onKey = active ? (event, key) => this.twin.edits(event, key) : null
    if (active) this.twin.element.setAttribute("aria-describedby", "edit-hint")
    else this.twin.element.removeAttribute("aria-describedby")
    this.edit.show(model, { active, waiting: changes.waiting })
    this.menu.show(this.edit.steps)
    this.bringFocus()
  }

  bringFocus() {
    if (held === null || !this.edit.stepOf(held.step) || document.activeElement !== document.body) return
    if (held.item) this.open(held.step, held.item)
    else this.twin.focus(held.step)
  }

  make(change) {
    this.say("")
    this.changes.make(change)
    this.show(this.model)
    this.graph.repaint()
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
