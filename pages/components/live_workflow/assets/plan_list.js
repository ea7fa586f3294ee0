// The edited plan as a list: a line for each step, to choose, move, copy, remove it and to add others.

import { el, once, setAttributes, setText } from "./dom.js"
import { FATE } from "./draw_edited.js"
import { agentColour } from "./format.js"
import { withoutTask } from "./task_words.js"
import { isolated, visible } from "./text.js"

// More of an instruction fits in no line.
const GLIMPSE = 300

// Returns the buttons that change the place of a step. `of` returns the step's key and number.
export function structureButtons(onChange, of) {
  const act = (icon, name, change) => {
    const button = el("button", { type: "button", class: "quiet icon" }, el("span", { class: "ic" }, icon))
    button.addEventListener("click", (event) => {
      event.stopPropagation()
      onChange({ step: Number(of().key), ...change })
    })
    return { button, name }
  }
  const all = [
    act("arrow_upward", (number) => `Move step ${number} up`, { kind: "shift", by: -1 }),
    act("arrow_downward", (number) => `Move step ${number} down`, { kind: "shift", by: 1 }),
    act("content_copy", (number) => `Copy step ${number}`, { kind: "copy" }),
    act("add", (number) => `Add a step after step ${number}`, { kind: "add" }),
    act("delete", (number) => `Remove step ${number}`, { kind: "remove" }),
  ]
  const element = el("span", { class: "structure" }, ...all.map(({ button }) => button))
  const show = (number, steps) => {
    for (const { button, name } of all) setAttributes(button, { "aria-label": name(number), title: name(number) })
    all[0].button.disabled = number === 0
    all[1].button.disabled = number === steps - 1
  }
  return { element, show }
}

export class PlanList {
  constructor({ onChange, onSelect, onExport }) {
    Object.assign(this, { onChange, onSelect })
    this.rows = new Map()
    const words = ["Step", "Instruction", "Reads", ""]
    this.head = el(
      "div",
      { class: "plan-row plan-head", "aria-hidden": "true" },
      ...words.map((word) => el("span", {}, word)),
    )
    this.list = el("ol", { class: "plan-rows" })
    this.changes = el("div", { class: "plan-changes small" })
    this.element = el("div", { class: "card plan-list", role: "tabpanel", "aria-label": "Plan" })
    this.element.append(this.head, this.list, this.changes)
    const add = el("button", { type: "button", class: "quiet", onclick: () => this.add() }, "+ Add a step")
    const out = el("button", { type: "button", class: "quiet", onclick: onExport }, "Export plan")
    this.actions = el("span", { class: "plan-actions" }, add, out)
  }

  add() {
    const last = this.steps.at(-1)
    this.onChange(last ? { kind: "add", step: Number(last.key) } : { kind: "first" })
  }

  show(model, selected, editor) {
    this.steps = editor.steps
    for (const [key, row] of this.rows) {
      if (editor.steps.some((step) => step.key === key)) continue
      row.element.remove()
      this.rows.delete(key)
    }
    const held = this.element.getRootNode().activeElement
    editor.steps.forEach((step, place) => {
      const row = this.row(step.key)
      this.showRow(row, step, { model, editor, selected })
      if (this.list.children[place] !== row.element)
        this.list.insertBefore(row.element, this.list.children[place] ?? null)
    })
    if (held && held !== this.element.getRootNode().activeElement && held.isConnected) held.focus()
    const whole = editor.faults.filter(({ key }) => key === null)
    const changes = editor.changes.length > 1 ? editor.changes : []
    once(this.changes, JSON.stringify([whole, changes]), () => [
      ...whole.map(({ message }) => el("p", { class: "bad" }, `✕ ${visible(message)}`)),
      ...changes.map((sentence) => el("p", { class: "muted" }, visible(sentence))),
    ])
    this.changes.hidden = !whole.length && !changes.length
  }

  row(key) {
    if (!this.rows.has(key)) {
      const row = {
        name: el("b"),
        told: el("span", { class: "told" }),
        reads: el("span", { class: "reads number" }),
        fate: el("span"),
      }
      const choose = () => this.onSelect(key)
      row.open = el(
        "button",
        { type: "button", class: "plan-open", onclick: choose },
        el("span", { class: "dot" }),
        row.name,
      )
      row.tools = structureButtons(this.onChange, () => ({ key }))
      row.element = el(
        "li",
        { class: "plan-row", onclick: choose },
        row.open,
        row.told,
        row.reads,
        row.fate,
        row.tools.element,
      )
      this.rows.set(key, row)
    }
    return this.rows.get(key)
  }

  showRow(row, step, { model, editor, selected }) {
    const { key, number, agent, instruction } = step
    const index = model.agentIndex(agent)
    row.element.style.setProperty("--agent", agentColour(index))
    row.element.classList.toggle("selected", key === selected)
    setAttributes(row.open, {
      "aria-label": `Edit step ${number}, ${isolated(agent)}`,
      "aria-current": key === selected,
    })
    setText(row.name, `${number} · ${isolated(agent)}`)
    setText(row.told, visible(withoutTask(instruction.slice(0, GLIMPSE))))
    setText(row.reads, readsInWords(step, editor.steps))
    const fault = editor.faults.find((each) => each.key === key)
    const fate = fault ? "fault" : model.editedStep(key)?.fate
    const again = fate === "runs" && editor.of === "ended"
    setText(
      row.fate,
      again
        ? "↻ runs again"
        : fault
          ? `✕ ${visible(fault.message)}`
          : fate
            ? `${FATE[fate].glyph} ${FATE[fate].word}`
            : "",
    )
    setAttributes(row.fate, { class: `fate ${fate ?? ""}`, title: fault?.message ?? model.editedStep(key)?.words })
    row.tools.show(number, editor.steps.length)
  }
}

function readsInWords({ access, number }, steps) {
  if (number === 0) return "nothing"
  if (access === "all") return "all earlier"
  const numbers = access.map((key) => steps.findIndex((step) => step.key === key))
  return numbers.length ? numbers.join(", ") : "nothing"
}
