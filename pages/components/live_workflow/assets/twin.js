// The canvas for keyboards and screen readers: one button per step in one tab stop; arrows select, Enter opens. A stack
// has one button, which unfolds it; Escape on one of its steps folds it again. While the plan is edited, G opens the menu
// of a step's access, and Alt with an arrow up or down moves the step.

import { el, setAttributes, setText } from "./dom.js"
import { CHANGE, FATE } from "./draw_edited.js"
import { pathKey } from "./format.js"
import { STEP_STATUS, shownStatus } from "./status.js"
import { isolated, visible } from "./text.js"

export class Twin {
  // `onUnfold` is given a stack, `onFold` a step whose stack shall be folded again; it returns that stack's id, if any.
  constructor({ onSelect, onOpen, onAccess, onMove, onUnfold, onFold }) {
    Object.assign(this, { onSelect, onOpen, onAccess, onMove, onUnfold, onFold })
    this.editing = false
    this.buttons = new Map()
    this.element = el("div", { class: "twin", role: "toolbar", "aria-label": "Steps of the workflow" })
    this.element.addEventListener("keydown", (event) => this.key(event))
  }

  // `stacks`: those of the graph, each in place of its steps.
  show(model, selected, stacks = []) {
    const all = model.edited
      ? model.edited.steps.map(editedButton)
      : model.ordered().map((step) => runButton(step, model.values))
    const stackOf = new Map(stacks.flatMap((stack) => stack.keys.map((key) => [key, stack])))
    const steps = all.flatMap((step) => {
      const stack = stackOf.get(step.key)
      if (!stack) return [step]
      return stack.keys[0] === step.key ? [stackButton(stack, step.text)] : []
    })
    const keys = steps.map((step) => step.key)
    const held = this.element.getRootNode().activeElement
    for (const [key, button] of this.buttons) {
      if (!keys.includes(key)) {
        button.remove()
        this.buttons.delete(key)
      }
    }
    this.stacks = new Map(stacks.map((stack) => [stack.id, stack]))
    steps.forEach((step, index) => {
      const key = keys[index]
      const button = this.button(key)
      if (this.element.children[index] !== button)
        this.element.insertBefore(button, this.element.children[index] ?? null)
      setText(button, step.text)
      setAttributes(button, {
        "aria-label": step.label,
        "aria-pressed": step.stack ? null : key === selected ? "true" : "false",
        "aria-expanded": step.stack ? "false" : null,
        tabindex: key === selected || (!keys.includes(selected) && index === 0) ? "0" : "-1",
      })
    })
    const folds = [...this.stacks.keys()].join()
    if (selected !== this.selected || folds !== this.folds) requestAnimationFrame(() => this.bring(selected)) // when it is laid out anyway
    this.selected = selected
    this.folds = folds
    // A button that changes places loses the focus.
    if (held && held !== this.element.getRootNode().activeElement && held.isConnected) held.focus()
  }

  button(key) {
    if (!this.buttons.has(key)) {
      const button = el("button", { type: "button", "data-step": key })
      button.addEventListener("click", () =>
        this.stacks.has(key) ? this.onUnfold(this.stacks.get(key)) : this.onOpen(key),
      )
      button.addEventListener("focus", () => this.stacks.has(key) || this.onSelect(key))
      this.buttons.set(key, button)
    }
    return this.buttons.get(key)
  }

  // Of many buttons only some are in view: the chosen one is. Its row is moved and nothing else of the page.
  bring(selected) {
    const button = this.buttons.get(selected)
    if (!button) return
    const [row, place] = [this.element.getBoundingClientRect(), button.getBoundingClientRect()]
    this.element.scrollLeft += Math.min(0, place.left - row.left) + Math.max(0, place.right - row.right)
  }

  focus(key) {
    this.buttons.get(key)?.focus()
  }

  key(event) {
    const { step } = event.target.dataset
    if (step === undefined || event.ctrlKey || event.metaKey) return
    if (this.editing && this.edits(event, step)) {
      event.preventDefault()
      event.stopPropagation()
      return
    }
    if (event.altKey) return
    if (event.key === "Escape") {
      const stack = this.onFold?.(step) ?? null
      if (stack === null) return
      event.preventDefault()
      event.stopPropagation()
      this.focus(stack)
      return
    }
    const keys = [...this.element.children].map((button) => button.dataset.step)
    const at = keys.indexOf(step)
    const next = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: keys.length - 1 }[event.key]
    if (next === undefined) return
    event.preventDefault()
    this.focus(keys[Math.max(0, Math.min(keys.length - 1, next))])
  }

  edits({ key, altKey }, step) {
    const by = altKey && { ArrowUp: -1, ArrowDown: 1 }[key]
    if (by) this.onMove(step, by)
    else if (!altKey && key.toLowerCase() === "g") this.onAccess(step)
    else return false
    return true
  }
}

const readsInWords = (reads) => (reads.length ? `reads ${reads.join(", ")}` : "reads nothing")

function runButton(step, values) {
  const key = pathKey(step.path)
  const { glyph, word } = STEP_STATUS[shownStatus(step)]
  const value = values.get(key)
  return {
    key,
    text: `${glyph} ${key}`,
    label: `Step ${key}, ${isolated(step.agent)}, ${word}, ${value ? `${visible(value)}, ` : ""}${readsInWords(step.reads)}`,
  }
}

function stackButton({ id, words, agent }, text) {
  const glyph = text.split(" ")[0]
  const { numbers } = words
  return {
    key: id,
    stack: true,
    text: `${glyph} ${numbers}`,
    label: `Steps ${numbers}, ${isolated(agent)}, ${words.state}, folded`,
  }
}

function editedButton({ key, number, was, agent, reads, change, fate, words }) {
  if (change === "removed")
    return { key, text: `${CHANGE.removed.glyph} ${was}`, label: `Removed step ${was}, ${isolated(agent)}` }
  const said = [change && CHANGE[change].word, fate && FATE[fate].word, words, readsInWords(reads)].filter(Boolean)
  const { glyph } = CHANGE[change] ?? FATE[fate] ?? CHANGE.same
  return { key, text: `${glyph} ${number}`, label: `Step ${number}, ${isolated(agent)}, ${said.join(", ")}` }
}
