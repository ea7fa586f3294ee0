// The canvas for keyboards and screen readers: one button per step in one tab stop; arrows select, Enter opens.

import { el, setAttributes, setText } from "./dom.js"
import { CHANGE, FATE } from "./draw_edited.js"
import { pathKey } from "./format.js"
import { STEP_STATUS, shownStatus } from "./status.js"

export class Twin {
  constructor({ onSelect, onOpen }) {
    this.onSelect = onSelect
    this.onOpen = onOpen
    this.buttons = new Map()
    this.element = el("div", { class: "twin", role: "toolbar", "aria-label": "Steps of the workflow" })
    this.element.addEventListener("keydown", (event) => this.key(event))
  }

  show(model, selected) {
    const steps = model.edited ? model.edited.steps.map(editedButton) : model.ordered().map(runButton)
    const keys = steps.map((step) => step.key)
    for (const [key, button] of this.buttons) {
      if (!keys.includes(key)) {
        button.remove()
        this.buttons.delete(key)
      }
    }
    steps.forEach((step, index) => {
      const key = keys[index]
      if (!this.buttons.has(key)) {
        const button = el("button", { type: "button", "data-step": key })
        button.addEventListener("click", () => this.onOpen(key))
        button.addEventListener("focus", () => this.onSelect(key))
        this.buttons.set(key, button)
      }
      const button = this.buttons.get(key)
      if (this.element.children[index] !== button)
        this.element.insertBefore(button, this.element.children[index] ?? null)
      setText(button, step.text)
      setAttributes(button, {
        "aria-label": step.label,
        "aria-pressed": key === selected ? "true" : "false",
        tabindex: key === selected || (!keys.includes(selected) && index === 0) ? "0" : "-1",
      })
    })
  }

  key(event) {
    const keys = [...this.buttons.keys()]
    const at = keys.indexOf(event.target.dataset.step)
    const next = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: keys.length - 1 }[event.key]
    if (next === undefined) return
    event.preventDefault()
    this.buttons.get(keys[Math.max(0, Math.min(keys.length - 1, next))])?.focus()
  }
}

const readsInWords = (reads) => (reads.length ? `reads ${reads.join(", ")}` : "reads nothing")

function runButton(step) {
  const key = pathKey(step.path)
  const { glyph, word } = STEP_STATUS[shownStatus(step)]
  return { key, text: `${glyph} ${key}`, label: `Step ${key}, ${step.agent}, ${word}, ${readsInWords(step.reads)}` }
}

function editedButton({ key, number, was, agent, reads, change, fate, words }) {
  if (change === "removed")
    return { key, text: `${CHANGE.removed.glyph} ${was}`, label: `Removed step ${was}, ${agent}` }
  const said = [change && CHANGE[change].word, fate && FATE[fate].word, words, readsInWords(reads)].filter(Boolean)
  const glyph = (change ? CHANGE[change] : FATE[fate])?.glyph ?? "○"
  return { key, text: `${glyph} ${number}`, label: `Step ${number}, ${agent}, ${said.join(", ")}` }
}
