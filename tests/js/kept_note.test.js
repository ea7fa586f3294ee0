// A note outlives the view in which it is written.

import assert from "node:assert/strict"
import { beforeEach, test } from "node:test"

import { live } from "./assets.js"

const { KeptNote } = await live("kept_note.js")

const body = {}
let notes

class Field {
  constructor() {
    this.heard = {}
    this.value = ""
    this.isConnected = true
  }
  addEventListener(kind, told) {
    this.heard[kind] = told
  }
  focus() {
    document.activeElement = this
    this.heard.focus()
  }
  type(text) {
    this.value += text
    this.heard.input()
  }
  // What a browser does to a field that has the focus and is taken out of the page, or is left by the person.
  async lose({ removed }) {
    this.isConnected = !removed
    document.activeElement = body
    this.heard.blur()
    await new Promise((resolve) => setTimeout(resolve, 5))
  }
}

beforeEach(() => {
  globalThis.document = { activeElement: body, body }
  notes = { texts: new Map(), writing: null, at: 0 }
})

function shown(runId) {
  const field = new Field()
  const note = new KeptNote(field, notes)
  note.show(runId)
  return { field, note }
}

test("a view that is built anew has text and focus", async () => {
  const { field } = shown("r")
  field.focus()
  field.type("a ban")
  await field.lose({ removed: true })
  const again = shown("r").field
  assert.equal(again.value, "a ban")
  assert.equal(document.activeElement, again)
})

test("who left the note keeps the focus elsewhere", async () => {
  const { field } = shown("r")
  field.focus()
  field.type("later")
  await field.lose({ removed: false })
  const again = shown("r").field
  assert.equal(again.value, "later")
  assert.equal(document.activeElement, body)
})

test("the focus is not taken from where the person is by now", async () => {
  const { field } = shown("r")
  field.focus()
  await field.lose({ removed: true })
  const task = (document.activeElement = {})
  shown("r")
  assert.equal(document.activeElement, task)
})

test("another run has no note of this one, and a note that was sent is gone", async () => {
  const { field, note } = shown("r")
  field.focus()
  field.type("of r")
  await field.lose({ removed: true })
  assert.equal(shown("s").field.value, "")
  assert.equal(document.activeElement, body)
  note.clear()
  assert.equal(shown("r").field.value, "")
})
