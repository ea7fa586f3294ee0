// A note that a person writes while a run waits. Streamlit may build the view anew at any moment: text and focus stay,
// so that the next letter is no shortcut.

const COMES_BACK_MS = 20_000

const lost = () => document.activeElement === null || document.activeElement === document.body

// By run. `writing`: the run whose note had the focus last, and when that was seen.
const all = { texts: new Map(), writing: null, at: 0 }

export class KeptNote {
  constructor(field, notes = all) {
    this.field = field
    this.notes = notes
    this.runId = null
    field.addEventListener("focus", () => this.see())
    field.addEventListener("input", () => {
      this.see()
      notes.texts.set(this.runId, field.value)
    })
    // A field that is taken out of the page loses the focus, too; that is not the person's doing.
    field.addEventListener("blur", () => setTimeout(() => field.isConnected && this.leave()))
  }

  see() {
    this.notes.writing = this.runId
    this.notes.at = performance.now()
  }

  leave() {
    if (this.notes.writing === this.runId) this.notes.writing = null
  }

  // Shows the note of this run as it was left. Call it when the field can be seen.
  show(runId) {
    if (runId === this.runId) return
    this.runId = runId
    this.field.value = this.notes.texts.get(runId) ?? ""
    const before = this.notes.writing === runId && performance.now() - this.notes.at < COMES_BACK_MS
    if (before && lost()) this.field.focus({ preventScroll: true })
  }

  clear() {
    this.field.value = ""
    this.notes.texts.delete(this.runId)
  }
}
