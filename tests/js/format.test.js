import assert from "node:assert/strict"
import { test } from "node:test"

import { live } from "./assets.js"

const { accessList, basis, doing, perMillion, plural, seconds, shareDone, shortHash, usd, usdInLine } =
  await live("format.js")

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

test("the time left is said as roughly as it is known, and a bar stands where there is a whole", () => {
  const left = (left_s) => doing({ phase: "reading", done: 512, total: 1520, per_s: 26.4, left_s }).split(" · ").at(-1)
  assert.deepEqual([0, 7.4, 12, 88, 100, 700].map(left), [
    "a few seconds left",
    "a few seconds left",
    "about 10 s left",
    "about 90 s left",
    "about 2 min left",
    "about 12 min left",
  ])
  assert.equal(left(null), "26/s")
  assert.equal(shareDone({ phase: "reading", done: 380, total: 1520 }), 0.25)
  assert.equal(shareDone({ phase: "loading", done: 0, total: 0 }), null)
  assert.equal(shareDone({ phase: "thinking", done: 20, total: 1024 }), null)
})

test("a model in this process says what it does, also where a total is not known", () => {
  assert.equal(doing({ phase: "loading", done: 0, total: 0 }), "Loading the model, 0 % of 1 MB")
  assert.equal(doing({ phase: "loading", done: 5e8, total: 1e9 }), "Loading the model, 50 % of 1.0 GB")
  assert.equal(doing({ phase: "reading", done: 512, total: 1520 }), "Reading the prompt, 512 of 1,520 tok")
  assert.equal(doing({ phase: "writing", done: 20, per_s: 9.96 }), "Writing, 20 tok · 10.0/s")
  assert.equal(doing({ phase: "writing", done: 20, per_s: null }), "Writing, 20 tok")
  assert.equal(
    doing({ phase: "thinking", done: 1, per_s: 1.52, left_s: 98 }),
    "Thinking, 1 tok · 1.5/s · about 2 min left",
  )
  const converting = { phase: "converting", done: 1e9, total: 4e9, per_s: 1e8, left_s: 30 }
  assert.equal(doing(converting), "Converting the model, 25 % of 4.0 GB · about 30 s left")
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
