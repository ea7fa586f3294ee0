import assert from "node:assert/strict"
import { test } from "node:test"

import { live } from "./assets.js"

const { Recording, clockText, readMoment, writeMoment } = await live("recording.js")
const { RunModel } = await live("model.js")

const patch = { type: "patch" }
const delta = { type: "delta" }
const made = (...rows) =>
  new Recording({ messages: rows.map(([message]) => message), moments: rows.map(([, ...moment]) => moment) })

test("a run is played at the pace of its own clock", () => {
  const recording = made([patch, 0, 0], [patch, 500, 501], [delta, 900, 903], [patch, 2900, 2904])
  assert.deepEqual(recording.times, [0, 500, 900, 2900])
  assert.deepEqual([recording.lengthMs, recording.cuts, recording.cutMs], [2900, 0, 0])
  assert.deepEqual(
    [0, 499, 500, 2899, 2900].map((ms) => recording.countAt(ms)),
    [1, 1, 2, 3, 4],
  )
  assert.deepEqual(
    [0, 250, 1900, 9999].map((ms) => recording.clockAt(ms)),
    [0, 250, 1900, 2900],
  )
})

test("a long pause is cut, and the run's clock still shows what passed", () => {
  const recording = made([patch, 0, 0], [patch, 60_000, 60_000], [patch, 61_000, 61_000])
  assert.deepEqual(recording.times, [0, 3000, 4000])
  assert.deepEqual([recording.cuts, recording.cutMs], [1, 57_000])
  assert.equal(recording.clockAt(1500), 30_000)
})

test("a wait for an approval, in which the run's clock stands, is a pause of the replay", () => {
  const recording = made([patch, 0, 0], [patch, 100, 100], [patch, 100, 7_200_100], [patch, 300, 7_200_300])
  assert.deepEqual(recording.times, [0, 100, 3100, 3300])
  assert.equal(recording.cutMs, 7_197_000)
  assert.equal(recording.clockAt(1000), 100)
})

test("clocks that go back do not make the replay go back", () => {
  const recording = made([patch, 0, 0], [patch, 400, 400], [patch, 0, 350], [patch, 500, 500])
  assert.deepEqual(recording.times, [0, 400, 400, 500])
  assert.deepEqual(recording.runMs, [0, 400, 400, 500])
})

test("arrows stop where more changed than a text", () => {
  const recording = made([patch, 0, 0], [patch, 100, 100], [delta, 150, 150], [patch, 200, 200], [patch, 210, 210])
  assert.deepEqual(recording.stops, [0, 100, 210])
  assert.deepEqual(
    [0, 100, 210].map((ms) => recording.stopFrom(ms, 1)),
    [100, 210, 210],
  )
  assert.deepEqual(
    [210, 100, 0].map((ms) => recording.stopFrom(ms, -1)),
    [100, 0, 0],
  )
})

test("a moment survives the address, and stands never before what it shows", () => {
  assert.deepEqual(["12.5", "0", "", null, "-1", "x", "Infinity"].map(readMoment), [
    12_500,
    0,
    null,
    null,
    0,
    null,
    null,
  ])
  for (const ms of [0, 2800.25, 1234.567]) assert.ok(readMoment(writeMoment(ms)) >= ms)
  assert.equal(writeMoment(12_500), "12.5")
  assert.deepEqual([0, 4999, 64_250, 600_000].map(clockText), ["0:00.0", "0:04.9", "1:04.2", "10:00.0"])
})

test("a moment outside the run is brought into it", () => {
  const recording = made([patch, 0, 0], [patch, 100, 100])
  assert.deepEqual(
    [-5, 50, 5000, NaN].map((ms) => recording.within(ms)),
    [0, 50, 100, 0],
  )
})

test("the same messages can be folded again and again: a replay leaves its recording as it was", () => {
  const step = { path: [0], status: "running", output: "", reasoning: "", attempts: [], progress: null }
  const messages = [
    {
      type: "snapshot",
      sequence: 1,
      elapsed_ms: 0,
      run: { status: "running", root: { path: [], raw: "", workflow: { steps: [{}] }, steps: [] } },
      drafts: [],
      layout: null,
      shape: "",
      timeline: null,
      conclusion: null,
      advice: { by_code: {}, otherwise: "" },
    },
    { type: "patch", sequence: 2, elapsed_ms: 5, run: {}, steps: [step], rounds: [] },
    { type: "delta", sequence: 3, path: [0], text: "forty", reasoning: false, output_tokens: 1 },
    { type: "delta", sequence: 4, path: [0], text: "-two", reasoning: false, output_tokens: 2 },
  ]
  const model = new RunModel()
  const before = JSON.stringify(messages)
  for (const until of [4, 3, 4]) {
    for (const message of messages.slice(0, until)) model.apply(message)
    assert.equal(model.steps.get("0").output, until === 4 ? "forty-two" : "forty")
  }
  assert.equal(JSON.stringify(messages), before)
})
