import assert from "node:assert/strict"
import { test } from "node:test"

import { live } from "./assets.js"

const { returnAfter } = await live("keep_focus.js")
const EDITOR = "dialog"

// A page of named parts; what has the focus loses it to the body when its part is taken away.
function pageOf(...names) {
  const body = { name: "body" }
  const page = { body, activeElement: body, parts: new Map() }
  const put = (name) => {
    const part = { name, focus: () => (page.activeElement = part), querySelector: (each) => page.querySelector(each) }
    page.parts.set(name, part)
    return part
  }
  const take = (name) => {
    if (page.activeElement === page.parts.get(name)) page.activeElement = body
    page.parts.delete(name)
  }
  page.querySelector = (selector) => page.parts.get(selector) ?? null
  for (const name of names) put(name)
  return { page, put, take, focused: () => page.activeElement.name }
}

// Lets time pass in which looks follow each other.
function wait(context) {
  for (let look = 0; look < 10; look += 1) context.mock.timers.tick(75)
}

test("a dialog that comes late and closes gives the focus back to the button that opened it", (context) => {
  context.mock.timers.enable({ apis: ["setTimeout"] })
  const { page, put, take, focused } = pageOf()
  const button = { name: "button", focus: () => (page.activeElement = button) }
  returnAfter("dialog", () => button, page)
  wait(context)
  put("dialog").focus()
  context.mock.timers.tick(60_000)
  assert.equal(focused(), "dialog")
  take("dialog")
  wait(context)
  assert.equal(focused(), "button")
})

test("a dialog that is closed before anybody looked gives the focus back, too", (context) => {
  context.mock.timers.enable({ apis: ["setTimeout"] })
  const { page, put, take, focused } = pageOf()
  const button = { name: "button", focus: () => (page.activeElement = button) }
  button.focus()
  returnAfter("dialog", () => button, page)
  wait(context)
  put("dialog").focus()
  take("dialog")
  assert.equal(focused(), "body")
  wait(context)
  assert.equal(focused(), "button")
})

test("what has the focus while a dialog goes does not end the waiting", (context) => {
  context.mock.timers.enable({ apis: ["setTimeout"] })
  const { page, put, take, focused } = pageOf()
  const button = { name: "button", focus: () => (page.activeElement = button) }
  button.focus()
  returnAfter("dialog", () => button, page)
  put("dialog").focus()
  wait(context)
  put("edge").focus() // what keeps the focus in a dialog outlives it for a moment
  take("dialog")
  wait(context)
  take("edge")
  wait(context)
  assert.equal(focused(), "button")
})

test("what a person has brought the focus to meanwhile keeps it", (context) => {
  context.mock.timers.enable({ apis: ["setTimeout"] })
  const { page, take, focused } = pageOf(EDITOR, "field")
  returnAfter(EDITOR, () => ({ focus: () => (page.activeElement = { name: "button" }) }), page)
  page.parts.get("field").focus()
  take(EDITOR)
  wait(context)
  assert.equal(focused(), "field")
})

test("a button that comes after the dialog went, or is drawn once more, gets the focus", (context) => {
  context.mock.timers.enable({ apis: ["setTimeout"] })
  const { page, put, take, focused } = pageOf(EDITOR)
  page.parts.get(EDITOR).focus()
  returnAfter(EDITOR, () => page.parts.get("button"), page)
  take(EDITOR)
  wait(context)
  put("button")
  wait(context)
  assert.equal(focused(), "button")
  take("button")
  put("button")
  wait(context)
  assert.equal(focused(), "button")
})
