import assert from "node:assert/strict"
import { test } from "node:test"

import { live } from "./assets.js"

const { accessList, basis, doing, perMillion, plural, seconds, shortHash, usd, usdInLine } = await live("format.js")

test("a time is in seconds, then minutes, then hours, and 60 s are a minute", () => {
  assert.deepEqual([null, 0, 940, 59_949, 59_950, 61_000, 3_599_600, 7_260_000].map(seconds), [
    "–",
    "0.0 s",
    "0.9 s",
    "59.9 s",
    "1 min 00 s",
    "1 min 01 s",
    "1 h 00 min",
    "2 h 01 min",
  ])
})

test("a cost keeps the digits that its size needs, and nothing known is not zero", () => {
  const said = [0, 0.0000004, 0.0012, 0.25, 12.5, 1234.5]
  assert.deepEqual(
    said.map((value) => usd(value)),
    ["$0", "<$0.000001", "$0.001200", "$0.2500", "$12.50", "$1,234.50"],
  )
  assert.equal(usd(null), "unknown")
  assert.equal(usd(null, 0.25), "at least $0.2500")
  assert.equal(usdInLine(null), "cost unknown")
})

test("a cost says what it rests on", () => {
  const usage = { estimated: false }
  assert.equal(basis({ cost_usd: 0, at_list_price: true, usage }), "")
  assert.equal(basis({ cost_usd: 1, at_list_price: false, usage }), "as the provider says")
  assert.equal(basis({ cost_usd: 1, at_list_price: true, usage }), "at list price")
  assert.equal(basis({ cost_usd: 1, at_list_price: true, usage: { estimated: true } }), "estimated")
})

test("a model in this process says what it does, also where a total is not known", () => {
  assert.equal(doing({ phase: "loading", done: 0, total: 0 }), "Loading the model, 0 % of 1 MB")
  assert.equal(doing({ phase: "loading", done: 5e8, total: 1e9 }), "Loading the model, 50 % of 1.0 GB")
  assert.equal(doing({ phase: "reading", done: 512, total: 1520 }), "Reading the prompt, 512 of 1,520 tok")
  assert.equal(doing({ phase: "writing", done: 20, per_s: 9.96 }), "Writing, 20 tok · 10.0/s")
  assert.equal(doing({ phase: "writing", done: 20, per_s: null }), "Writing, 20 tok")
})

test("lists, counts, digests and prices", () => {
  assert.deepEqual([null, "all", [], [0, 2]].map(accessList), ["…", '"all"', "[]", "[0, 2]"])
  assert.deepEqual(
    [plural(1, "step"), plural(2, "step"), plural(0, "reply", "replies")],
    ["1 step", "2 steps", "0 replies"],
  )
  assert.deepEqual([shortHash(null), shortHash("0123456789abcdef")], ["–", "0123…cdef"])
  assert.equal(perMillion({ input: 1.25, output: 10 }), "$1.25 in, $10 out per million")
})
