import assert from "node:assert/strict"
import { test } from "node:test"

import { live } from "./assets.js"

globalThis.document ??= { hidden: false }

// Frames that the test draws, each ten milliseconds after the one before it.
let frames = []
let clock = 0
globalThis.requestAnimationFrame = (move) => frames.push(move) && move
globalThis.cancelAnimationFrame = (move) => (frames = frames.filter((each) => each !== move))
performance.now = () => clock
const drawFrame = () => {
  clock += 10
  for (const move of frames.splice(0)) move()
}

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

test("it plays to the end, says so once and stands there", () => {
  let moves = 0
  const ends = []
  const onEnd = () => ends.push([player.position, player.playing])
  const player = new Player(recording(), { onMove: () => (moves += 1), onEnd })
  player.start()
  assert.equal(player.playing, true)
  for (let frame = 0; frame < 10; frame += 1) drawFrame()
  assert.deepEqual([ends, moves], [[[40, false]], 4])
})

test("stopped, it moves no more", () => {
  let moves = 0
  const player = new Player(recording(), { onMove: () => (moves += 1), onEnd: () => {} })
  player.start()
  player.stop()
  drawFrame()
  assert.deepEqual([moves, player.position], [0, 0])
})
