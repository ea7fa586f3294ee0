import assert from "node:assert/strict"
import { test } from "node:test"

import { live } from "./assets.js"

const { copyText } = await live("dom.js")

// A browser outside https and localhost: it has no navigator.clipboard, only the command.
function page({ lets }) {
  const there = { fields: 0, listeners: [], copied: null, focused: 0 }
  const field = () => ({ setAttribute() {}, append() {}, select() {}, remove: () => (there.fields -= 1) })
  globalThis.document = {
    createElement: field,
    addEventListener: (_, listener) => there.listeners.push(listener),
    removeEventListener: () => there.listeners.pop(),
    execCommand: () => {
      const clipboardData = { setData: (_, text) => (there.copied = text) }
      if (lets) there.listeners.at(-1)({ clipboardData, preventDefault() {}, stopImmediatePropagation() {} })
      return lets
    },
  }
  const beside = { after: () => (there.fields += 1), focus: () => (there.focused += 1) }
  return { there, beside }
}

test("without navigator.clipboard a text is copied by the command, and nothing of that is left", async () => {
  Object.defineProperty(globalThis, "navigator", { value: {}, configurable: true })
  const { there, beside } = page({ lets: true })
  assert.equal(await copyText("6 · 7 = 42", beside), true)
  assert.deepEqual(there, { fields: 0, listeners: [], copied: "6 · 7 = 42", focused: 1 })
})

test("a browser that copies nothing is believed", async () => {
  Object.defineProperty(globalThis, "navigator", { value: {}, configurable: true })
  const { there, beside } = page({ lets: false })
  assert.equal(await copyText("42", beside), false)
  assert.deepEqual([there.fields, there.copied], [0, null])
})
