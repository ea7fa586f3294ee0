// The keyboard of the page's plan editor, which consists of Streamlit's fields. These apply typed text when they lose
// focus or at Ctrl+Enter; here it also applies after a pause. While the editor is open, Ctrl+Enter starts a run only in
// the task box: elsewhere it would start a run that has nothing to do with the edited plan.

export const EDITOR = ".st-key-plan-editor"
const TASK_BOX = ".st-key-task-box"
const PAUSE_MS = 400

export class EditorKeys {
  // Streamlit's fields listen at the page's root, its shortcuts at the document. The body lies between them: an event
  // that is stopped there reaches the field and no shortcut.
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
    // A shortcut that undoes or re-runs must use the text that is now in the field.
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

  // A field that lost focus has already applied its text.
  forget() {
    clearTimeout(this.pause)
    this.field = null
  }
}
