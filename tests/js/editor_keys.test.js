import assert from "node:assert/strict"
import { test } from "node:test"

import { live } from "./assets.js"

const { EditorKeys } = await live("editor_keys.js")

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
