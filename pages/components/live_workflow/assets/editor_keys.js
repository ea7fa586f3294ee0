// The keyboard while a plan is edited. Ctrl+Enter starts a run only in the task box then: elsewhere it would start one
// that has nothing to do with the edited plan. In a dialog keys are for its own fields.

// Set on our element in the page while a plan is edited.
export const EDITING = "data-plan-editing"
const EDITOR = `[${EDITING}]`
const TASK_BOX = ".st-key-task-box"
const DIALOG = '[role="dialog"]'
const TEXT = 'textarea, input:not([type="radio"], [type="checkbox"]), [contenteditable="true"]'

// Returns "undo" or "redo" where the keys mean that of the plan. In a field they are the field's own, but with Alt.
function undoing(event) {
  if (!event.altKey && event.composedPath()[0].matches?.(TEXT)) return null
  const key = event.key.toLowerCase()
  if (key === "z") return event.shiftKey ? "redo" : "undo"
  return key === "y" && !event.shiftKey ? "redo" : null
}

export class EditorKeys {
  // Streamlit's fields listen at the page's root, its shortcuts at the document. The body lies between them: an event
  // that is stopped there reaches the field and no shortcut. `onKey` is given "undo", "redo" or "start".
  constructor({ onKey, body = document.body }) {
    this.onKey = onKey
    this.body = body
    this.listen = (event) => this.key(event)
    body.addEventListener("keydown", this.listen)
  }

  destroy() {
    this.body.removeEventListener("keydown", this.listen)
  }

  key(event) {
    if (!(event.ctrlKey || event.metaKey)) return
    if (event.target.closest?.(DIALOG) || !document.querySelector(EDITOR)) return
    const enter = event.key === "Enter"
    const kind = enter && event.shiftKey ? "start" : undoing(event)
    if (kind) {
      event.preventDefault()
      event.stopPropagation()
      this.onKey(kind)
    } else if (enter && !event.shiftKey && !event.target.closest?.(TASK_BOX)) event.stopPropagation()
  }
}
