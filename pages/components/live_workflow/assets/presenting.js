// Presenting: the run alone, in larger type, without the rail and the task box. It is on while the page shows this view;
// no address and no setting remembers it. frame.css and style.css have its sizes.

import { el, setText } from "./dom.js"

const ON = "data-presenting"
const KEY = "p"
const DIALOG = '[role="dialog"]'
const OPEN = "dialog[open], :popover-open"
const FIELD = 'input, textarea, select, [contenteditable="true"]'

const typing = (event) => event.composedPath()[0].matches?.(FIELD) ?? false

export class Presenting {
  // `root`: of the view. `may`: whether there is something to present.
  constructor({ root, may, onChange, page = document }) {
    Object.assign(this, { root, may, onChange, page })
    this.task = el("span", { class: "presented-task", dir: "auto" })
    const leave = el("button", { type: "button", class: "quiet", onclick: () => this.set(false) }, "Esc: leave")
    this.element = el("div", { class: "presented" }, this.task, el("span", { class: "spring" }), leave)
    this.keys = (event) => this.key(event)
    // Before what else Escape leaves, such as the tour.
    page.addEventListener("keydown", this.keys, { capture: true })
  }

  destroy() {
    this.page.removeEventListener("keydown", this.keys, { capture: true })
    this.set(false)
  }

  get on() {
    return this.root.hasAttribute(ON)
  }

  set(on) {
    const to = on && this.may()
    if (to === this.on) return
    this.root.toggleAttribute(ON, to)
    this.page.documentElement.toggleAttribute(ON, to)
    this.onChange()
  }

  show(task) {
    if (this.on && !this.may()) this.set(false)
    setText(this.task, task)
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.shiftKey || event.repeat || typing(event)) return
    if (this.page.querySelector(DIALOG) !== null || this.root.querySelector(OPEN) !== null) return
    // A replay is left first.
    const leaves = event.key === "Escape" && this.on && !this.root.hasAttribute("data-replay")
    if (!leaves && !(event.key.toLowerCase() === KEY && (this.on || this.may()))) return
    event.preventDefault()
    event.stopPropagation()
    this.set(!this.on)
  }
}
