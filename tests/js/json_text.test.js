import assert from "node:assert/strict"
import { test } from "node:test"

import { live } from "./assets.js"

const { beginsAsJson, inLines, isJson } = await live("json_text.js")

test("one object or list is JSON, a number or a word in it is not", () => {
  assert.deepEqual(['{"a":1}', " [1, 2]\n", "[]"].map(isJson), [true, true, true])
  assert.deepEqual(["12", '"a"', "{a:1}", '{"a":1} and more', "", "[x]"].map(isJson), [
    false,
    false,
    false,
    false,
    false,
    false,
  ])
})

test("a text that is not whole yet begins as JSON only if it can become some", () => {
  assert.deepEqual(['{ "na', '[{"a', "[[1", '["'].map(beginsAsJson), [true, true, true, true])
  assert.deepEqual(["{question}", "[1] is the source", "[x]"].map(beginsAsJson), [false, false, false])
})

test("only white space outside texts changes", () => {
  const hard = '{"b":1.0e5,"a":[],"a":{},"t":"x, {y}: [\\"z\\"]\\\\","n":12345678901234567890,"l":[1,{"k":null}]}'
  const lines = inLines(hard)
  assert.equal(lines.replaceAll(/\n */g, "").replaceAll(": ", ":"), hard.replaceAll(": ", ":"))
  assert.match(lines, /"a": \[\],\n {2}"a": \{\},/)
  assert.ok(lines.includes("12345678901234567890"), "no number is read")
  assert.ok(lines.includes("1.0e5"), "none is written anew")
})

test("what is nested very deep still ends", () => {
  const deep = "[".repeat(5000) + "]".repeat(5000)
  assert.equal(inLines(deep).replaceAll(/\s/g, ""), deep)
})
