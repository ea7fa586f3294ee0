// The bar while the plan is edited: what is changed, what would run and what it costs, and what can be done with it.

import { el, setClass, setText } from "./dom.js"
import { visible } from "./text.js"

const KEYS = navigator.platform?.startsWith("Mac") ? "⌘ ⇧ ↵" : "Ctrl ⇧ ↵"

export class EditBar {
  constructor({ onChange, onSelect }) {
    const button = (words, kind, more = {}) =>
      el("button", { type: "button", onclick: () => onChange({ kind }), ...more }, words)
    this.title = el("p", { class: "edit-title" })
    this.fault = el("button", { type: "button", class: "edit-title bad", onclick: () => onSelect(this.faulty) })
    this.says = el("p", { class: "edit-says" })
    this.lines = el("div", { class: "edit-lines", hidden: true }, this.title, this.fault, this.says)
    this.undo = button("Undo", "undo", { class: "quiet", title: "Ctrl + Z outside a field" })
    this.redo = button("Redo", "redo", { class: "quiet" })
    this.discard = button("Discard", "reset", { title: "Takes all changes back; Undo brings them again" })
    this.close = button("Close", "close")
    this.startWords = el("span")
    this.start = button(this.startWords, "start", { class: "primary start-edited" })
    this.start.append(el("kbd", { "aria-hidden": "true" }, KEYS))
    this.actions = el("div", { class: "edit-actions", hidden: true })
    this.actions.append(this.undo, this.redo, this.discard, this.close, this.start)
  }

  // Returns whether the bar says what the edit would do, in place of how the run went.
  show(editor) {
    const active = editor !== null
    const previews = active && (editor.changed || editor.of === "new")
    this.lines.hidden = !previews
    this.actions.hidden = !active
    if (!active) return false
    this.undo.hidden = !editor.undo
    this.redo.hidden = !editor.redo
    this.discard.hidden = !editor.changed || editor.of === "new"
    this.start.hidden = !previews
    this.start.disabled = !editor.starts
    this.close.title = editor.of === "new" ? "Your plan is kept: Plans… opens it again" : "Your changes are kept"
    setText(this.startWords, editor.start)
    if (previews) this.showLines(editor)
    return previews
  }

  showLines({ faults, title, says, changes }) {
    const [first, ...others] = faults
    this.faulty = first?.key ?? null
    this.fault.hidden = !first
    this.title.hidden = Boolean(first)
    setText(this.fault, first ? `✕ ${visible(first.message)}` : "")
    setText(this.title, visible(title))
    this.fault.title = this.fault.textContent
    this.title.title = visible(changes.join("\n"))
    const more = others.length ? `${others.length} more to correct. ` : ""
    const parts = first ? [{ kind: "", text: `${more}Correct it to see what would run.` }] : says
    const state = JSON.stringify(parts)
    if (state === this.said) return
    this.said = state
    this.says.replaceChildren(...parts.map(({ kind, text }) => el("span", { class: kind }, visible(text))))
  }

  // What is read aloud.
  get words() {
    const first = this.fault.hidden ? this.title : this.fault
    return [first, ...this.says.children].map(({ textContent }) => textContent).join(". ")
  }

  showKind(element) {
    setClass(element, `card bar edited${this.fault.hidden ? "" : " faulty"}`)
  }
}
