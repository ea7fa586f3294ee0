import assert from "node:assert/strict"
import { test } from "node:test"

import { live } from "./assets.js"

globalThis.KeyboardEvent = function KeyboardEvent(kind, told) {
  Object.assign(this, { kind }, told)
}

globalThis.HTMLTextAreaElement = class {
  isConnected = true
  pressed = []

  closest() {
    return this
  }

  dispatchEvent({ kind, key, ctrlKey }) {
    this.pressed.push([kind, key, ctrlKey])
  }
}

const { EditorKeys } = await live("editor_keys.js")

test("what is typed while Streamlit puts the view back applies after the pause, once", (context) => {
  context.mock.timers.enable({ apis: ["setTimeout"] })
  const field = new HTMLTextAreaElement()
  const body = new EventTarget()
  globalThis.document = { activeElement: null, body }
  const before = new EditorKeys({ onKey: () => {} })
  document.activeElement = field
  before.typed({ target: field })
  before.destroy()
  const after = new EditorKeys({ onKey: () => {} })
  context.mock.timers.tick(1000)
  assert.deepEqual(field.pressed, [["keydown", "Enter", true]])
  after.destroy()
})

test("while a plan is edited, its keys are taken before the page has them, but in a field undo is the field's", () => {
  const body = new EventTarget()
  globalThis.document = { activeElement: null, body, querySelector: () => body }
  const told = []
  const keys = new EditorKeys({ onKey: (kind) => told.push(kind) })
  const press = (key, more = {}, field = false) => {
    const event = { key, ctrlKey: true, target: { closest: () => null }, stopped: 0, ...more }
    event.composedPath = () => [{ matches: () => field }]
    event.preventDefault = () => {}
    event.stopPropagation = () => (event.stopped += 1)
    keys.key(event)
    return event.stopped
  }
  press("z")
  press("Z", { shiftKey: true })
  press("y")
  press("Enter", { shiftKey: true }, true)
  press("z", { altKey: true }, true)
  assert.deepEqual(told, ["undo", "redo", "redo", "start", "undo"])
  assert.equal(press("z", {}, true), 0)
  assert.equal(press("Enter", {}, true), 1, "it starts no run of the task")
  assert.equal(told.length, 5)
  keys.destroy()
})
