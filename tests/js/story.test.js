// The story of the first screen, for who asked the system for less motion, and while somebody types.

import assert from "node:assert/strict"
import path from "node:path"
import { after, test } from "node:test"

import { becomes, told } from "./page.js"

const { StoryView } = await import(path.resolve("pages/components/live_workflow/assets/story_view.js"))

const shown = []
after(() => shown.forEach((view) => view.destroy()))

async function story() {
  document.body.replaceChildren()
  const host = document.createElement("div")
  document.body.append(host)
  const view = new StoryView(host.attachShadow({ mode: "open" }), { told: async () => told.story })
  const pressed = []
  view.update({ data: { plays: true, opens: true }, setTriggerValue: (name) => pressed.push(name) })
  shown.push(view)
  await becomes(() => view.root.hasAttribute("data-told"))
  return { view, root: view.root, play: view.root.querySelector(".story-play"), pressed }
}

test("who asked for less motion sees the story's end, and opens both runs", async () => {
  globalThis.matchMedia = () => ({ matches: true, addEventListener() {} })
  const { view, root, play, pressed } = await story()
  assert.deepEqual([play.textContent, root.dataset.beat], ["Play", "3"])
  for (const [which, answer] of Object.entries({ first: "14:13", second: "13:43" })) {
    const pane = root.querySelector(`[aria-label="Output of step 3 in the ${which} run"]`)
    assert.ok(pane.textContent.includes(`Answer: ${answer}`))
  }
  assert.match(root.textContent, /now also reads step 1/)
  view.open.click()
  assert.deepEqual(pressed, ["open"])
})

test("it plays by itself until somebody types in a task", async () => {
  globalThis.matchMedia = () => ({ matches: false, addEventListener() {} })
  const { root, play } = await story()
  assert.deepEqual([play.textContent, root.dataset.beat], ["Pause", "1"])
  const task = document.createElement("textarea")
  document.body.append(task)
  task.dispatchEvent(new Event("input", { bubbles: true }))
  assert.equal(play.textContent, "Play")
})
