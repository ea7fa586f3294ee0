import assert from "node:assert/strict"
import { test } from "node:test"

import { live } from "./assets.js"

globalThis.document ??= { hidden: false }
globalThis.cancelAnimationFrame ??= clearTimeout
globalThis.requestAnimationFrame ??= (move) => setTimeout(move, 1)

const { Recording } = await live("recording.js")
const { Player } = await live("player.js")

const step = { path: [0], status: "running", output: "", reasoning: "", attempts: [], progress: null }
const recording = () =>
  new Recording({
    messages: [
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
      { type: "patch", sequence: 5, elapsed_ms: 40, run: {}, steps: [], rounds: [], timeline: { end_ms: 40 } },
    ],
    moments: [0, 5, 20, 30, 40].map((ms) => [ms, ms]),
  })

test("a moment shows what had come until then, forwards and backwards", () => {
  const player = new Player(recording(), { onMove: () => {}, onEnd: () => {} })
  const outputs = [40, 25, 10, 30].map((ms) => {
    player.go(ms)
    return player.model.steps.get("0").output
  })
  assert.deepEqual(outputs, ["forty-two", "forty", "", "forty-two"])
  player.go(9_999)
  assert.deepEqual([player.position, player.ended], [40, true])
})

test("the timeline of the whole run stays while its beginning is shown", () => {
  const player = new Player(recording(), { onMove: () => {}, onEnd: () => {} })
  player.go(player.lengthMs)
  player.timeline = player.model.timeline
  player.go(0)
  assert.deepEqual(player.model.timeline, { end_ms: 40 })
})

test("it plays to the end, says so once and stands there", async () => {
  let moves = 0
  const ends = []
  const ended = new Promise((done) => {
    const player = new Player(recording(), {
      onMove: () => (moves += 1),
      onEnd: () => {
        ends.push([player.position, player.playing])
        setTimeout(done, 20)
      },
    })
    player.start()
    assert.equal(player.playing, true)
  })
  await ended
  assert.deepEqual(ends, [[40, false]])
  assert.ok(moves > 0)
})

test("stopped, it moves no more", async () => {
  let moves = 0
  const player = new Player(recording(), { onMove: () => (moves += 1), onEnd: () => {} })
  player.start()
  player.stop()
  await new Promise((done) => setTimeout(done, 20))
  assert.deepEqual([moves, player.position], [0, 0])
})
