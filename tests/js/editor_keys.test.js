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
  const before = new EditorKeys({ onUndo: () => {} })
  document.activeElement = field
  before.typed({ target: field })
  before.destroy()
  const after = new EditorKeys({ onUndo: () => {} })
  context.mock.timers.tick(1000)
  assert.deepEqual(field.pressed, [["keydown", "Enter", true]])
  after.destroy()
})
