// The canvas for keyboards and screen readers: one button per step in one tab stop; arrows select, Enter opens.

import { el, setAttributes, setText } from "./dom.js"
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
    const steps = model.ordered()
    const keys = steps.map((step) => pathKey(step.path))
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
      if (this.element.children[index] !== button) this.element.insertBefore(button, this.element.children[index] ?? null)
      const { glyph, word } = STEP_STATUS[shownStatus(step)]
      setText(button, `${glyph} ${key}`)
      const reads = step.reads.length ? `reads ${step.reads.join(", ")}` : "reads nothing"
      setAttributes(button, {
        "aria-label": `Step ${key}, ${step.agent}, ${word}, ${reads}`,
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
