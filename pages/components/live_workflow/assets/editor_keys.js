// The keyboard of the page's plan editor, which is made of Streamlit's own fields. Those apply what was typed when they
// are left or at Ctrl+Enter; here typing applies by itself after a pause. And while the editor is open Ctrl+Enter starts
// a run from the task box alone: elsewhere it would start one that has nothing to do with the edited plan.

export const EDITOR = ".st-key-plan-editor"
const TASK_BOX = ".st-key-task-box"
const PAUSE_MS = 400

export class EditorKeys {
  // Streamlit's fields listen at the page's root, its shortcuts at the document: the body lies between them, so what is
  // stopped there reaches the field and no shortcut.
  constructor(body = document.body) {
    this.body = body
    this.listeners = {
      keydown: (event) => this.key(event),
      input: (event) => this.typed(event),
      compositionend: (event) => this.typed(event),
      focusout: () => this.forget(),
    }
    for (const [kind, listener] of Object.entries(this.listeners)) body.addEventListener(kind, listener)
  }

  destroy() {
    this.forget()
    for (const [kind, listener] of Object.entries(this.listeners)) this.body.removeEventListener(kind, listener)
  }

  key(event) {
    if (!(event.ctrlKey || event.metaKey) || !document.querySelector(EDITOR)) return
    if (event.key === "Enter" && !event.shiftKey && !event.target.closest?.(TASK_BOX)) event.stopPropagation()
    // A shortcut that undoes or re-runs is about the text as it stands in the field.
    else if (event.altKey || event.shiftKey) this.apply()
  }

  typed(event) {
    const field = event.target
    if (event.isComposing || !(field instanceof HTMLTextAreaElement) || !field.closest(EDITOR)) return
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

  // A field that is left has applied what was typed.
  forget() {
    clearTimeout(this.pause)
    this.field = null
  }
}
