import assert from "node:assert/strict"
import { test } from "node:test"

import { live } from "./assets.js"

// So much of an element as attributes and the look for what is open need.
class Fake {
  constructor() {
    this.attributes = new Set()
    this.open = null
  }

  hasAttribute(name) {
    return this.attributes.has(name)
  }

  toggleAttribute(name, on) {
    this.attributes[on ? "add" : "delete"](name)
  }

  querySelector() {
    return this.open
  }

  setAttribute() {}
  addEventListener() {}
  append() {}
}

globalThis.document = { createElement: () => new Fake() }
const { Presenting } = await live("presenting.js")

function begin({ may = () => true } = {}) {
  const page = Object.assign(new Fake(), { documentElement: new Fake(), removeEventListener() {} })
  const root = new Fake()
  const presenting = new Presenting({ root, may, onChange() {}, page })
  const press = (key, more = {}) => {
    let taken = false
    const field = { matches: () => more.inField === true }
    presenting.key({
      key,
      ...more,
      composedPath: () => [field],
      preventDefault: () => (taken = true),
      stopPropagation() {},
    })
    return taken
  }
  return { presenting, page, root, press }
}

test("P turns it on and off, Escape turns it off and is else nobody's", () => {
  const { presenting, page, press } = begin()
  assert.equal(press("Escape"), false)
  assert.equal(press("p"), true)
  assert.ok(presenting.on && page.documentElement.hasAttribute("data-presenting"))
  assert.equal(press("Escape"), true)
  assert.ok(!presenting.on && !page.documentElement.hasAttribute("data-presenting"))
  press("P")
  press("p")
  assert.ok(!presenting.on)
})

test("a letter that is typed, a shortcut, and a key for what is open turn nothing on", () => {
  const { presenting, page, root, press } = begin()
  for (const more of [{ inField: true }, { ctrlKey: true }, { metaKey: true }, { altKey: true }, { repeat: true }])
    assert.equal(press("p", more), false)
  page.open = {}
  assert.equal(press("p"), false)
  page.open = null
  root.open = {}
  assert.equal(press("p"), false)
  assert.ok(!presenting.on)
})

test("without a run there is nothing to present, and it ends with the view and with the run", () => {
  const { presenting: none, press } = begin({ may: () => false })
  assert.equal(press("p"), false)
  none.set(true)
  assert.ok(!none.on)
  const left = begin()
  left.press("p")
  left.presenting.destroy()
  assert.ok(!left.page.documentElement.hasAttribute("data-presenting"))
  let there = true
  const gone = begin({ may: () => there })
  gone.press("p")
  there = false
  gone.presenting.show("")
  assert.ok(!gone.presenting.on)
})
