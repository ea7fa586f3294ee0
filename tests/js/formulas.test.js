import assert from "node:assert/strict"
import { test } from "node:test"

import { live } from "./assets.js"

const { takeOut } = await live("formulas.js")
const sources = (text, growing) => takeOut(text, growing).formulas.map(({ source }) => source)

test("formulas are found in each of their delimiters", () => {
  assert.deepEqual(sources("So \\(a^2\\) and $b_1$, then \\[c\\] and $$d$$."), [
    "\\(a^2\\)",
    "$b_1$",
    "\\[c\\]",
    "$$d$$",
  ])
})

test("money, code and fences are no formulas", () => {
  assert.deepEqual(sources("It costs $5 and $10 more."), [])
  assert.deepEqual(sources("In `$HOME/$x$` and\n```\n$a$\n```\n"), [])
})

test("text and formulas put together again are the text", () => {
  const text = "A $x$ b\n\n\\[\ny\n\\]\nand \\(z\\) end."
  const { shown, formulas, mark } = takeOut(text)
  assert.equal(formulas.length, 3)
  const again = shown.replaceAll(new RegExp(`${mark}(\\d+)${mark}`, "g"), (_, number) => formulas[number].source)
  assert.equal(again, text)
})

test("each line of what is shown knows its line in the text", () => {
  const { shown, lineOf } = takeOut("one\n\\[\na\n\\]\nlast $b$")
  const lines = shown.split("\n")
  assert.equal(lineOf[lines.findIndex((line) => line.startsWith("last"))], 4)
})

test("a formula that is still written is not drawn", () => {
  const { formulas } = takeOut("Now $$\\frac{1}{", true)
  assert.ok(formulas.every(({ drawn }) => drawn === false))
})

test("a text without a dollar or a backslash is left alone", () => {
  assert.deepEqual(takeOut("plain"), { shown: "plain", formulas: [], mark: "", lineOf: null })
})

test("of very many formulas the first are drawn, and all keep their place", () => {
  const { formulas } = takeOut("\\(x\\) ".repeat(5000))
  assert.equal(formulas.length, 5000)
  assert.equal(formulas.filter(({ drawn }) => drawn).length, 3000)
  assert.ok(formulas[2999].drawn && !formulas[3000].drawn)
})

test("a million formulas that are never closed come to an end", () => {
  // If each were compared with each, it would take hours.
  const text = "\\(".repeat(1_000_000)
  const { shown, formulas, mark } = takeOut(text)
  const again = shown.replaceAll(new RegExp(`${mark}(\\d+)${mark}`, "g"), (_, number) => formulas[number].source)
  assert.ok(!mark || again === text)
})
