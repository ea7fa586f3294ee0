// The graph while a plan is written: the layouts of its pieces follow each other, and no card covers another.

import assert from "node:assert/strict"
import path from "node:path"
import { test } from "node:test"

import { becomes, told } from "./page.js"

const { Graph } = await import(path.resolve("pages/components/live_workflow/assets/graph.js"))

const BESIDE_PX = 480 // the panel and the margins

for (const innerWidth of [1000, 1600])
  test(`no card covers another while a plan is written, in a window of ${innerWidth} px`, async () => {
    globalThis.innerWidth = innerWidth
    const graph = new Graph({ onSelect: () => {} })
    Object.defineProperty(graph.element, "clientWidth", { value: innerWidth - BESIDE_PX })
    document.body.replaceChildren(graph.element)
    const model = { layout: null, rounds: new Map(), step: () => null, agentIndex: () => null }
    let seen = 0
    for (const layout of told.written) {
      model.layout = layout
      graph.show(model, null)
      await becomes(() => true)
      const places = [...graph.places.values()]
      for (const one of places)
        for (const other of places.filter(({ id }) => id > one.id)) {
          const beside = Math.abs(one.x - other.x) >= (one.width + other.width) / 2
          const below = Math.abs(one.y - other.y) >= (one.height + other.height) / 2
          assert.ok(beside || below, `${one.id} covers ${other.id}`)
        }
      seen = places.length
    }
    graph.destroy()
    assert.equal(seen, 8)
  })
