// The keyboard of the page's plan editor, which consists of Streamlit's fields. These apply typed text when they lose
// focus or at Ctrl+Enter; here it also applies after a pause. While the editor is open, Ctrl+Enter starts a run only in
// the task box: elsewhere it would start a run that has nothing to do with the edited plan.

export const EDITOR = ".st-key-plan-editor"
const TASK_BOX = ".st-key-task-box"
// In a dialog Ctrl+Enter is for its own fields.
const DIALOG = '[role="dialog"]'
// The fields whose text applies after a pause: those of the editor, and that of a plan in words.
const APPLIES = `${EDITOR}, .st-key-plans-given`
const PAUSE_MS = 400

const TEXT = 'textarea, input:not([type="radio"], [type="checkbox"]), [contenteditable="true"]'

// Returns "undo" or "redo" where the keys mean that of the plan. In a field they are the field's own.
function undoing(event) {
  if (event.altKey || event.composedPath()[0].matches?.(TEXT)) return null
  const key = event.key.toLowerCase()
  if (key === "z") return event.shiftKey ? "redo" : "undo"
  return key === "y" && !event.shiftKey ? "redo" : null
}

export class EditorKeys {
  // Streamlit's fields listen at the page's root, its shortcuts at the document. The body lies between them: an event
  // that is stopped there reaches the field and no shortcut.
  constructor({ onUndo, body = document.body }) {
    this.onUndo = onUndo
    this.body = body
    this.listeners = {
      keydown: (event) => this.key(event),
      input: (event) => this.typed(event),
      compositionend: (event) => this.typed(event),
      focusout: () => this.forget(),
    }
    for (const [kind, listener] of Object.entries(this.listeners)) body.addEventListener(kind, listener)
    // Streamlit may take the view away and put it back while somebody types: what they typed meanwhile applies as well.
    this.wait(document.activeElement)
  }

  destroy() {
    this.forget()
    for (const [kind, listener] of Object.entries(this.listeners)) this.body.removeEventListener(kind, listener)
  }

  key(event) {
    if (!(event.ctrlKey || event.metaKey)) return
    const dialog = event.target.closest?.(DIALOG)
    if (!dialog && !document.querySelector(EDITOR)) return
    const undoes = dialog ? null : undoing(event)
    if (undoes) {
      event.preventDefault()
      event.stopPropagation()
      this.onUndo(undoes)
    } else if (event.key === "Enter" && !event.shiftKey && !event.target.closest?.(TASK_BOX)) event.stopPropagation()
    // A shortcut that undoes or re-runs must use the text that is now in the field.
    else if (event.altKey || event.shiftKey) this.apply()
  }

  typed(event) {
    if (!event.isComposing) this.wait(event.target)
  }

  wait(field) {
    if (!(field instanceof HTMLTextAreaElement) || !field.closest(APPLIES)) return
    this.forget()
    this.field = field
    this.pause = setTimeout(() => this.apply(), PAUSE_MS)
  }

  // As if the person had pressed the field's own key.
  apply() {
    const { field } = this
    this.forget()
    if (!field?.isConnected) return
    field.dispatchEvent(
      new KeyboardEvent("keydown", { key: "Enter", keyCode: 13, ctrlKey: true, bubbles: true, cancelable: true }),
    )
  }

  // A field that lost focus has already applied its text.
  forget() {
    clearTimeout(this.pause)
    this.field = null
  }
}
