import assert from "node:assert/strict"
import { registerHooks } from "node:module"
import { test } from "node:test"

import { live } from "./assets.js"

const opened = []
globalThis.WebSocket = class {
  constructor(url) {
    this.url = url
    opened.push(this)
  }
  close() {
    this.onclose({ code: 1000 })
  }
}

// The app serves its modules below /_stcore/; here they are files.
const atTheApp = `data:text/javascript,export const BASE = "http://127.0.0.1:8501/"`
registerHooks({
  resolve: (name, context, next) =>
    name === "./base.js" ? { url: atTheApp, shortCircuit: true } : next(name, context),
})
const { RunSocket } = await live("socket.js")

const connect = (finished) => {
  opened.length = 0
  const seen = { messages: [], states: [] }
  const onMessage = (message) => seen.messages.push(message)
  const onState = (state) => seen.states.push(state)
  const socket = new RunSocket("a run", { onMessage, onState, finished })
  return { socket, seen }
}

test("a lost connection is opened again, and what the old one still delivers is dropped", (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] })
  const { socket, seen } = connect(() => false)
  const [first] = opened
  first.onmessage({ data: "1" })
  first.onclose({ code: 1011 })
  first.onmessage({ data: "2" })
  t.mock.timers.tick(5_000)
  assert.equal(opened.length, 2)
  assert.match(String(opened[1].url), /^ws:.*\/api\/runs\/a%20run\/live$/)
  opened[1].onmessage({ data: "3" })
  assert.deepEqual(seen.messages, [1, 3])
  assert.deepEqual(seen.states, ["connecting", "live", "reconnecting", "reconnecting", "live"])
  socket.close()
})

test("the connection of a run that is over is not opened again, however late it ends", (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] })
  const { seen } = connect(() => true)
  opened[0].onmessage({ data: "1" })
  opened[0].onclose({ code: 1000 })
  t.mock.timers.tick(60_000)
  assert.equal(opened.length, 1)
  assert.equal(seen.states.at(-1), "over")
})

test("a reader who is refused does not ask again", (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] })
  const { seen } = connect(() => false)
  opened[0].onclose({ code: 4403 })
  t.mock.timers.tick(60_000)
  assert.deepEqual([opened.length, seen.states.at(-1)], [1, "refused"])
})
